"""An installed SGLang's own scheduler, served a batch at a time, in its own Python (``asked.py`` builds it).

Requests come as its tokenizer's process would send them, and each batch goes through its own ``run_batch``
and ``process_batch_result``; what the worker would compute is a token that is told with the batch's output.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvroom.engines.decode_steps import decode
from kvroom.engines.no_card import off_card

PLACE_BITS = 24
"""Where names of blocks stand for token ids, an id is a name and a place in so many low bits."""

ALL_IDS = 1 << 63
"""A vocabulary of as many, since none of them is text."""


def _assign_tokens(
    rows: Any, table: Any, starts: Any, ends: Any, places: Any, *_: object, **__: object
) -> None:
    """Write the ``places`` of new tokens into the ``rows`` of the requests' table."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        room = min(end, table.shape[1]) - start
        table[row, start : start + room] = places[taken : taken + room]
        taken += end - start


class PlainKernel:
    """A kernel over plain tensors, launched on a grid as Triton's are."""

    def __init__(self, run: Callable[..., None]) -> None:
        self.run = run

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self.run


def _pages_for_prompts(starts: Any, ends: Any, last: Any, pages: Any, *out: Any) -> None:
    """Lay tokens from ``starts`` to ``ends`` of each request behind its ``last`` place, then on new pages;
    ``out``: the places, and third the page's tokens."""
    places, _, page, *_ = out
    filled = used = 0
    for start, end, before in zip(starts.tolist(), ends.tolist(), last.tolist(), strict=True):
        place = before
        for token in range(start, end):
            new_page = token % page == 0
            place = int(pages[used]) * page if new_page else place + 1
            used += new_page
            places[filled] = place
            filled += 1


def _pages_for_decodes(ends: Any, last: Any, pages: Any, *out: Any) -> None:
    """The same of one token each."""
    _pages_for_prompts(ends - 1, ends, last, pages, *out)


def _last_places(table: Any, rows: Any, lengths: Any) -> Any:
    """Where the last token of each of the ``rows`` lies; -1 where there is none."""
    places = table[rows, (lengths - 1).clamp(min=0)]
    return places.where(lengths > 0, -1).to(lengths.dtype)


NATIVE: dict[str, Any] = {
    "attention_backends": lambda: ("torch_native", "torch_native"),
    "support_triton": lambda *_: False,
    "assign_req_to_token_pool_func": _assign_tokens,
    "get_last_loc_triton": _last_places,
    "alloc_extend_kernel": PlainKernel(_pages_for_prompts),
    "alloc_decode_kernel": PlainKernel(_pages_for_decodes),
}
"""What asks whether there is Triton, as it is where there is none, and kernels over plain tensors."""


def _record(cls: Any, **given: Any) -> Any:
    """A record of ``cls`` with those of ``given`` that it has, and None for what else it needs."""
    known = inspect.signature(cls).parameters
    needed = {name: None for name, each in known.items() if each.default is each.empty}
    return cls(**{**needed, **{name: value for name, value in given.items() if name in known}})


def _without_triton(server: Any) -> None:
    """Take SGLang's own ways over plain tensors, where it has one beside a kernel."""
    for name in (
        "sglang.srt.mem_cache.allocation",
        "sglang.srt.mem_cache.allocator",
        "sglang.srt.mem_cache.allocator.paged",
        "sglang.srt.mem_cache.common",
        "sglang.srt.speculative.eagle_info_v2",
        "sglang.srt.speculative.eagle_utils",
        "sglang.srt.speculative.spec_utils",
    ):
        with contextlib.suppress(ImportError):
            module: Any = importlib.import_module(name)
            for known, value in NATIVE.items():
                if hasattr(module, known):
                    setattr(module, known, value)
    todo = [server.token_to_kv_pool_allocator]
    while todo:
        allocator = todo.pop()
        if getattr(allocator, "use_triton_kernels", False):
            allocator.use_triton_kernels = False
        todo += [each for each in vars(allocator).values() if "Allocator" in type(each).__name__]


class Sampled(list[int]):
    """Numbers of a batch, as the worker's tensor would give them: token ids, tokens kept."""

    is_cpu = True

    def tolist(self) -> list[int]:
        """As a tensor's."""
        return list(self)


def _speculation(server: Any) -> Any:
    """How it drafts, as resolved."""
    try:
        return importlib.import_module("sglang.srt.runtime_context").get_spec()
    except (ImportError, AttributeError):
        return server.server_args


class HandedOn:
    """What a worker with drafts hands on to its next batch: nothing that a scheduler decides by."""

    future_indices = None
    """Set with each batch; None leaves lengths as the requests themselves have them."""

    def __init__(self, tokens: Any, accepted: Any, width: int) -> None:
        self.bonus_tokens = tokens.reshape(-1, width)[:, 0]
        self.accept_tokens, self.accept_lens, self.draft_token_num = tokens, accepted, width

    def __setattr__(self, name: str, value: object) -> None:
        if name != "future_indices":
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def prepare_for_decode(self, batch: Any) -> None:
        """Give a decode its room, as the draft's own input does until 0.5.14."""
        module: Any = importlib.import_module("sglang.srt.speculative.eagle_info_v2")
        module.EagleDraftInputV2Mixin.prepare_for_decode(self, batch)

    def filter_batch(self, *_: object, **__: object) -> None:
        """As some of its requests leave."""

    merge_batch = filter_batch


class SglangPlayer:
    """One scheduler as it serves: what it was given, what is on its way."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.planned = "running_batch" in inspect.signature(server.get_next_batch_to_run).parameters
        """It is given the batches of the pass before, and gives a plan; until 0.5.15 it has them itself."""
        self.place = off_card()
        self.requests: dict[str, Any] = {}
        self.answers: dict[str, Callable[[int], int]] = {}
        self.names: dict[int, int] = {}
        self.lengths: dict[str, int] = {}
        self.running: set[str] = set()
        self.known: set[str] = set()
        self.in_flight: dict[int, tuple[Any, Any]] = {}
        self.last: list[Any] = []
        self.number = 0
        self.steps_in_flight = 2 if server.enable_overlap else 1
        self.busy = False
        io: Any = importlib.import_module("sglang.srt.managers.io_struct")
        self.incoming = io.TokenizedGenerateReqInput
        told = inspect.signature(self.incoming).parameters["input_ids"].annotation
        self.arrays = "array" in str(told)  # until 0.5.12 lists
        self.sampling = importlib.import_module(
            "sglang.srt.sampling.sampling_params"
        ).SamplingParams
        utils: Any = importlib.import_module("sglang.srt.managers.utils")
        if not hasattr(utils, "GenerationBatchResult"):
            raise ImportError("a scheduler to be stepped from outside (until 0.5.3)")
        self.result = utils.GenerationBatchResult
        spec = _speculation(server)
        self.width = int(spec.speculative_num_draft_tokens) if spec.speculative_algorithm else 0
        """Tokens that are verified of each request in a step, the one without a draft among them."""
        self.drafts = self._drafts(spec) if self.width else 0
        batches: Any = importlib.import_module("sglang.srt.managers.schedule_batch")
        ways = ("is_spec_v2", "is_v2_eagle")  # of two, until 0.5.13
        if self.width and any(hasattr(batches.ScheduleBatch, way) for way in ways):
            second = getattr(server.spec_algorithm, "supports_spec_v2", bool)()
            if not (second and (self.arrays or server.enable_overlap)):
                raise ImportError("drafts that its worker gives room itself (until 0.5.13)")
        self._stand_in()
        self.idle = getattr(server, "on_idle", None) or server.self_check_during_idle
        _without_triton(server)
        gc.collect()
        gc.freeze()

    def _stand_in(self) -> None:
        """Have the server run nothing, tell nobody, and keep what a model would read."""
        server = self.server
        server.model_worker.forward_batch_generation = self._forward
        for holder in (server, getattr(server, "output_streamer", None)):
            if hasattr(holder, "stream_output"):
                kind: Any = type(holder)
                kind.stream_output = lambda *_, **__: None
        if hasattr(server, "enable_skip_finishing_decode"):
            server.enable_skip_finishing_decode = server.enable_overlap
        server.result_queue = deque()
        device = getattr(server, "device_module", None)
        if device is not None and not hasattr(server, "schedule_stream"):
            server.schedule_stream = device.Stream(priority=0)  # until 0.5.19 where its loop begins
        relay: Any = getattr(server, "future_map", None)
        unread = ("stash", "_resolve_spec_extras") if self.width else ("resolve_future",)
        for name in unread:  # what a model would read
            if hasattr(relay, name):
                setattr(relay, name, lambda *_: None)
        self.result.copy_to_cpu = lambda *_, **__: None

    @staticmethod
    def _drafts(args: Any) -> int:
        """Drafts of which at most so many are kept in a step: the depth of their tree."""
        if str(args.speculative_algorithm).upper() == "NGRAM":
            return int(args.speculative_num_draft_tokens) - 1
        return int(args.speculative_num_steps)

    def facts(self) -> dict[str, Any]:
        """What whoever steps it needs to know."""
        server = self.server
        return {
            "num_blocks": int(server.max_total_num_tokens) // int(server.page_size) + 1,
            "steps_in_flight": self.steps_in_flight,
            "hash_tokens": int(server.page_size),
            "drafts": self.drafts,
            "keeps_stale": False,
        }

    def step(
        self,
        add: Sequence[dict[str, Any]] = (),
        done: Sequence[tuple[int, dict[str, int]]] = (),
        drop: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Take the outputs of batches that are ``done``, queue those to ``add``, and schedule the next batch.

        Of a batch each request is a row ``[request, tokens, samples, drafts]``, or its number alone where
        it decodes one token. ``same`` stands for the rows of the batch before.
        """
        answer: dict[str, Any] = {}
        with self.place:
            finished = [index for number, kept in done for index in self.update(number, kept)]
            for index in drop:
                self._drop(str(index))
            if self.busy and not self.in_flight and not self.requests:
                self._next()  # its running batch lets go of who has ended: it is not idle before
                self.idle()
                self.busy = False
            refused, shorter = [], []
            for request in add:
                left = self._add(**request)
                if left is None:
                    refused.append(request["index"])
                elif left != self.lengths[str(request["index"])]:
                    shorter.append((request["index"], left))
            if finished:
                answer["finished"] = finished
            if refused:
                answer["refused"] = refused
            if shorter:
                answer["shorter"] = shorter
            return answer | self.schedule()

    def decode(self, steps: int, done: Sequence[tuple[int, dict[str, int]]] = ()) -> dict[str, Any]:
        """Take the outputs of batches that are ``done``, then up to ``steps`` of decodes."""
        with self.place:
            finished = [index for number, kept in done for index in self.update(number, kept)]
            return {"finished": finished, **decode(self, steps)}

    def _add(
        self,
        *,
        index: int,
        prompt: Any,
        output: Any,
        priority: int | None = None,
        arrival: int = 0,
        shares: tuple[Sequence[int], int, int] | None = None,
    ) -> int | None:
        """A request: ``prompt`` and ``output`` as runs ``[first, count]`` of token ids, or as counts, where
        names of blocks (``shares``: names, blocks a name, blocks named) stand for them. How long its
        answer may become; None where the scheduler refuses it."""
        server, name = self.server, str(index)
        if isinstance(prompt, int):
            ids, answer = self._named(index, prompt, shares)
            length = int(output)
        else:
            ids = array("q")
            for first, count in prompt:
                ids.extend(range(first, first + count))
            own = array("q")
            for first, count in output:
                own.extend(range(first, first + count))
            length, start = len(own), len(ids)

            def answer(place: int) -> int:
                return own[place - start] if place - start < len(own) else 0  # kept beyond its end

        params = self.sampling(max_new_tokens=length)
        params.normalize(None)
        made = _record(
            self.incoming,
            rid=name,
            input_ids=ids if self.arrays else list(ids),
            sampling_params=params,
            return_logprob=False,
            logprob_start_len=-1,
            top_logprobs_num=0,
            stream=False,
            priority=priority,
        )
        before = len(server.waiting_queue)
        server.handle_generate_request(made)
        if len(server.waiting_queue) == before:
            return None
        request = server.waiting_queue[-1]
        if request.finished() or getattr(request, "to_finish", None):
            server.waiting_queue.pop()
            return None
        request.vocab_size = ALL_IDS
        self.busy = True
        self.requests[name], self.answers[name] = request, answer
        self.lengths[name] = length
        return int(request.sampling_params.max_new_tokens)

    def _named(
        self, index: int, prompt: int, shares: tuple[Sequence[int], int, int] | None
    ) -> tuple[array[int], Callable[[int], int]]:
        """Ids of a prompt of which names of blocks are known, and what gives the id of a later place."""
        names, unit, named = shares or ((), 1, 0)
        span = unit * int(self.server.page_size)
        known = self.names
        bases = [known.setdefault(name, len(known) + 1) << PLACE_BITS for name in names]
        shared = named * int(self.server.page_size)
        private = known.setdefault(-(index + 1), len(known) + 1) << PLACE_BITS

        def at(place: int) -> int:
            if place < shared:
                return bases[place // span] + place % span
            return private + place

        ids, place = array("q"), 0
        while place < min(prompt, shared):
            end = min(place // span * span + span, prompt, shared)
            first = at(place)
            ids.extend(range(first, first + end - place))
            place = end
        ids.extend(range(private + place, private + prompt))
        return ids, at

    def _drop(self, name: str) -> None:
        server = self.server
        server.waiting_queue = [each for each in server.waiting_queue if each.rid != name]
        self._forget(name)

    def _forget(self, name: str) -> None:
        for kept in (self.requests, self.answers, self.lengths):
            kept.pop(name, None)
        self.running.discard(name)

    def schedule(self) -> dict[str, Any]:
        """The next batch."""
        server, running = self.server, self.running
        batch = self._next()
        rows: list[Any] = []
        admitted: list[tuple[int, int, bool]] = []
        prefill = batch is not None and batch.forward_mode.is_extend()
        for place, request in enumerate(batch.reqs if batch else ()):
            name = request.rid
            if name not in self.requests:
                continue  # finished while this batch was made
            index = int(name)
            if not prefill:
                rows.append((index, 1 + self.drafts, True, self.drafts) if self.width else index)
                continue
            tokens = int(batch.extend_lens[place])
            rows.append((index, tokens, request is not server.chunked_req, 0))
            if name not in running:
                running.add(name)
                admitted.append((index, int(batch.prefix_lens[place]), name in self.known))
                self.known.add(name)
        waiting = {each.rid for each in server.waiting_queue}
        lost = [name for name in running if name in waiting]
        running.difference_update(lost)
        answer: dict[str, Any] = {
            "held": self._held(),
            "running": len(running),
            "waiting": len(waiting),
        }
        if admitted:
            answer["admitted"] = admitted
        if lost:
            answer["preempted"] = sorted(map(int, lost))
        if self.width and rows and not prefill:
            answer["drafted"] = self.drafts
        if rows and rows == self.last:
            answer["same"] = True
        else:
            answer["rows"] = self.last = rows
        if rows:
            answer["step"] = self.number
        elif waiting:
            answer["first"] = int(server.waiting_queue[0].rid)
        if batch is not None:
            result = server.run_batch(batch)
            sent = (batch.copy() if server.enable_overlap else batch, result)
            self.in_flight[self.number] = sent
            if server.enable_overlap:
                server.result_queue.append(sent)
            self.number += 1
        return answer

    def _next(self) -> Any:
        batch = self._pass()
        if batch is None and self.server.waiting_queue and not self.in_flight:
            batch = self._pass()  # a server goes on at once; who had ended has left now
        return batch

    def _pass(self) -> Any:
        server = self.server
        if not self.planned:
            server.last_batch = server.get_next_batch_to_run()
            return server.last_batch
        plan = server.get_next_batch_to_run(
            running_batch=server.running_batch, last_batch=server.last_batch
        )
        server.running_batch = plan.running_batch
        server.last_batch = plan.batch_to_run
        return plan.batch_to_run

    def _held(self) -> int:
        server = self.server
        free = int(server.token_to_kv_pool_allocator.available_size())
        free += int(server.tree_cache.evictable_size())
        used = int(server.max_total_num_tokens) - free
        return -(-used // int(server.page_size))

    def _forward(
        self, batch: Any, *_: object, on_publish: Callable[[Any], None] | None = None, **__: object
    ) -> Any:
        import torch

        count = len(batch.seq_lens)
        if not self.width:
            return self.result(next_token_ids=torch.zeros(count, dtype=torch.int64))
        if on_publish is not None:
            on_publish(batch.seq_lens)
        tokens = torch.zeros(count * self.width, dtype=torch.int64)
        ones = torch.ones(count, dtype=torch.int64)
        return _record(
            self.result,
            next_token_ids=tokens,
            accept_lens=ones,
            speculative_num_draft_tokens=self.width,
            next_draft_input=HandedOn(tokens, ones, self.width),
        )

    def update(self, number: int, kept: Mapping[str, int] | None = None) -> list[int]:
        """Take the output of a batch, with the drafts that are ``kept`` by request; gives the requests that
        it finished."""
        batch, result = self.in_flight.pop(number)
        if self.server.enable_overlap:
            self.server.result_queue.popleft()
        decodes = bool(self.width) and not batch.forward_mode.is_extend()
        tokens, accepted = Sampled(), Sampled()
        for each in batch.reqs:
            count = 1 + (kept or {}).get(each.rid, 0) if decodes else 1
            answer = self.answers.get(each.rid)
            place = len(each.origin_input_ids) + len(each.output_ids)
            told = [answer(place + i) if answer else 0 for i in range(count)]
            tokens += told + [0] * (self.width - count if decodes else 0)
            accepted.append(count)
        result.next_token_ids = tokens
        if decodes:
            result.accept_lens = accepted
        self.server.process_batch_result(batch, result)
        done = [each.rid for each in batch.reqs if each.rid in self.requests and each.finished()]
        for name in done:
            self._forget(name)
        return list(map(int, done))
