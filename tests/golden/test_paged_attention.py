"""PagedAttention's figure 2 in its own conditions: OPT-13B, ShareGPT lengths, a cap of 2,048 tokens.

Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention
(SOSP 2023), figures 2 and 11: systems that reserve keep 20.4 to 38.2 % of the cache useful, paging
96.3 %; ShareGPT prompts of 161 tokens and answers of 338 on average.
"""

from kvroom.workloads.statistics import describe, reservation
from kvroom.workloads.synthetic import parse

SPEC = "arrivals=poisson:1/s,input=lognormal:mean=161:sigma=1.1,output=lognormal:mean=338:sigma=0.9"


def lengths():
    found: dict[int, int] = {}
    for request in parse(SPEC + ",requests=4000"):
        tokens = request.input_tokens + request.output_tokens
        if tokens <= 2048:
            found[tokens] = found.get(tokens, 0) + 1
    return found


def test_reserving_the_cap_keeps_a_fifth_to_two_fifths_useful():
    assert 0.20 <= reservation(lengths(), 2048)["useful_ratio"] <= 0.382


def test_paging_keeps_96_percent_useful():
    told = describe(parse(SPEC + ",requests=4000"))
    assert 0.955 <= 1 - told["fragmentation"]["16"] <= 0.99
