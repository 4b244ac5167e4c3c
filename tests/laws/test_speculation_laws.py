"""Laws of drafting while requests are served: without drafts it is as if there were none; nobody is lost."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.paged.scheduler_setup import GroupSpec
from serving import Fickle, some_case, some_chats, stepped

SEEDS = st.integers(0, 2**32)


def some_drafts(dice):
    tokens = dice.randint(1, 5)
    return Drafts(
        chances=tuple(dice.choice([0.0, 0.5, 0.9, 1.0]) for _ in range(tokens)),
        schedule=dice.choice([(), (), ((4, 0),), ((3, 1), (6, 0))]),
        ahead_tokens=dice.choice([0, tokens]),
        rereads=dice.random() < 0.5,
        seed=dice.randint(0, 9),
    )


@settings(max_examples=150)
@given(SEEDS)
def test_drafts_that_are_never_made_change_nothing(seed):
    dice = random.Random(seed)
    case = (some_case if seed % 2 else some_chats)(dice)
    never = Drafts(chances=(0.5,) * dice.randint(1, 5), schedule=((0, 0),))
    (_, plain), (_, without) = (
        stepped(replace(case, engine=replace(case.engine, drafts=d))) for d in (None, never)
    )
    assert without.done_ps == plain.done_ps
    assert without.first_ps == plain.first_ps
    assert (without.found, without.gone) == (plain.found, plain.gone)
    assert without.samples() == plain.samples()
    assert without.verifying == 0


@settings(max_examples=300)
@given(SEEDS)
def test_nobody_is_lost_and_no_block(seed):
    """Full, windowed and state groups, blocks that give out, caches that are brought."""
    dice = random.Random(seed)
    case = (some_case if seed % 2 else some_chats)(dice)
    engine, connector = case.engine, None
    size = engine.groups[0].block_size
    match dice.randint(0, 3):
        case 0:
            connector = Fickle(size, seed, dice.choice([10, 1000, 30_000]))
        case 1:
            window = GroupSpec(
                type="sliding_window", block_size=size, reach=dice.choice([1, 5, 30])
            )
            engine = replace(engine, groups=(*engine.groups, window))
        case 2:
            state = GroupSpec(type="mamba", block_size=size)
            engine = replace(engine, groups=(*engine.groups, state))
    case.engine = replace(engine, drafts=some_drafts(dice))
    stepper, out = stepped(case, connector)
    assert len(out.done_ps) + len(out.gone) == len(case.requests)
    assert stepper.scheduler.blocks_in_use == 0
    longest = case.engine.config.max_model_len
    given_out = sum(
        min(output or 1, longest - prompt)
        for index, (_, prompt, output, *_) in enumerate(case.requests)
        if index in out.done_ps
    )
    assert out.output_tokens == given_out
    for index, done in out.done_ps.items():
        assert case.requests[index][0] < out.first_ps[index] <= done
    assert out.verifying <= out.gained_tokens <= out.verifying + out.drafted_tokens


@settings(max_examples=150)
@given(SEEDS)
def test_where_memory_lasts_drafts_save_just_the_passes_of_what_is_kept(seed):
    """One request at a time, all room: it takes a pass less for each draft that is kept."""
    dice = random.Random(seed)
    case = some_case(dice)
    limits = replace(
        case.engine.config, max_num_seqs=1, max_num_batched_tokens=1000,
        long_prefill_token_threshold=0, watermark=0.0,
    )  # fmt: skip
    case.engine = replace(case.engine, num_gpu_blocks=5000, config=limits, drafts=some_drafts(dice))
    case.engine = replace(case.engine, drafts=replace(case.engine.drafts, schedule=()))
    _, out = stepped(case)
    answers = [
        min(output or 1, limits.max_model_len - prompt)
        for index, (_, prompt, output, *_) in enumerate(case.requests)
        if index in out.done_ps
    ]
    kept = out.gained_tokens - out.verifying
    assert out.gaps.count == sum(answers) - len(answers) - kept
