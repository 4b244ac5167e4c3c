"""Times of a deployment that has been serving for a while, in closed form, on the simulation's clock.

``serving`` says what published measurements see, which begin with everybody at once and end with clients
and servers around the engine. Here is what the engine's own steps make of a load that goes on: what a
simulation measures once its first waves are over. Whoever comes waits for the step that is under way (with
asynchronous scheduling for the one scheduled already, too), then for the step that computes its prompt,
which it may share with the prompts of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

from kvroom.latency.clock import PS_PER_S, StepClock
from kvroom.latency.load import CLOSE, ROUNDS, Times


@dataclass(frozen=True, kw_only=True)
class Steady:
    """One data-parallel replica of ``replicas`` under requests of ``input_tokens`` and ``output_tokens`` on
    average (``alike``: all of that very length).

    ``budget_tokens`` are computed in one step at most, ``ahead`` steps are scheduled before the one that
    runs is over (1 with asynchronous scheduling).
    """

    clock: StepClock
    input_tokens: int
    output_tokens: int
    budget_tokens: int
    ahead: int
    alike: bool
    replicas: int

    def step_s(self, requests: float, prompts: float = 0.0) -> float:
        """A step in which ``requests`` decode and ``prompts`` whole prompts are computed."""
        clock, each, whole = self.clock, self._request_ps, self._prompt_ps
        spent = clock.step_ps + requests * each + prompts * whole
        for e in clock.experts:
            spent += e.ps(requests, prompts * self.input_tokens)
        return spent / PS_PER_S

    @property
    def _steps(self) -> float:
        """Steps in which a request decodes; where drafts are kept, one gains several tokens."""
        return max(1.0, (self.output_tokens - 1) / self.clock.tokens_a_step)

    def _ended(self, decoding: float) -> float:
        """Answers that end in a step in which so many decode."""
        return decoding * self.clock.tokens_a_step / self.output_tokens

    @cached_property
    def _request_ps(self) -> int:
        """What a request adds that decodes, half of its answer written."""
        half = self.input_tokens + self.output_tokens // 2
        return self.clock.request_ps + self.clock.context_ps(half)

    @cached_property
    def _prompt_ps(self) -> int:
        """What a whole prompt adds in one step, experts left out."""
        clock, tokens = self.clock, self.input_tokens
        return clock.token_ps * tokens + clock.prompt_ps + clock.chunk_ps(0, tokens)

    @property
    def chunks(self) -> int:
        """Steps that one prompt takes."""
        return ceil(self.input_tokens / self.budget_tokens)

    def prompt_s(self, requests: float, step: float) -> float:
        """What one prompt adds to the steps of ``requests`` that decode meanwhile."""
        more = (self.chunks - 1) * self.clock.prompt_ps / PS_PER_S
        return max(0.0, self.step_s(requests, 1) - step) + more

    def closed_loop(self, users: float) -> Times:
        """``users`` (whole deployment) who send a prompt, read the answer and send the next; all have
        room."""
        here = users / self.replicas
        steps, gained = self._steps, self.clock.tokens_a_step
        decoding = here
        for _ in range(ROUNDS):
            step = self.step_s(decoding)
            prompt = self.prompt_s(decoding, step)
            company, together, meets = self._together(here, decoding, step, prompt)
            # Prompts of those who are not computed together with one's own.
            prompts = max(0.0, here - company) / here * self._ended(decoding)
            each = step + prompts * prompt
            own = self._own_s(step, prompt, together)
            # The step scheduled ahead, if there is anybody for it, may hold prompts.
            others = meets if self.alike else min(1.0, max(0.0, here - 1))
            queued = self.ahead * (others * step + meets * together * prompt / self.chunks)
            service = steps * each
            settled = max(min(1.0, here), here * service / (service + own + queued))
            if abs(settled - decoding) <= CLOSE * here:
                break
            decoding = settled
        return Times(
            tpot_s=each / gained,
            tokens_a_step=gained,
            ttft_s=own + queued,
            step_s=step,
            prompts_a_step=prompts,
            prompt_s=prompt,
            own_s=own,
            queued_s=queued,
            no_room_s=0.0,
            decoding=decoding * self.replicas,
            requests_per_s=users / (service + own + queued),
        )

    def _together(
        self, users: float, decoding: float, step: float, prompt: float
    ) -> tuple[float, float, float]:
        """(users who keep company, prompts computed in one step, how likely the step before has as many).

        Requests that are alike keep company: those whose prompts were computed in one step answer together
        and come again together, one group a step after the other. Others come one by one, unless more than
        one comes in the time that a step takes.
        """
        most = max(1.0, self.budget_tokens / self.input_tokens)
        if self.alike:
            group = max(1.0, min(users, most // 1)) if self.chunks == 1 else 1.0
            groups = max(1.0, users / group)
            return group, group, (groups - 1) / groups
        each = max(0.0, users - 1) / max(users, 1.0) * self._ended(decoding)
        meets = min(1.0, each)
        return 1.0, min(most, 1 + each * (step + meets * prompt) / step), meets

    def _own_s(self, step: float, prompt: float, together: float) -> float:
        late = self.clock.passage_ps(self.input_tokens) / PS_PER_S
        return self.chunks * step + together * prompt + late

    def open_arrivals(self, requests_per_s: float) -> Times | None:
        """Arrivals at ``requests_per_s`` (whole deployment), independent of one another; None where more
        come than can be served.

        Prompts take ρ = rate × ``prompt_s`` of the time, so what a step gains takes a step over 1 − ρ. Who
        comes waits for the rest of the step under way, longer where steps with prompts follow one another.
        """
        rate = requests_per_s / self.replicas
        steps, gained = self._steps, self.clock.tokens_a_step
        decoding = 1.0
        for _ in range(ROUNDS):
            step = self.step_s(decoding)
            prompt = self.prompt_s(decoding, step)
            busy = rate * prompt
            if busy >= 1:
                return None
            each = step / (1 - busy)
            settled = rate * steps * each
            if abs(settled - decoding) <= CLOSE * max(decoding, 1.0):
                break
            decoding = settled
        long = step + prompt / self.chunks
        within = min(1.0, rate * long * self.chunks)  # the share of time in steps with prompts
        rest = (within * long + (1 - within) * step) / 2
        ahead = self.ahead * (step + min(1.0, rate * each) * (long - step))
        most = max(1.0, self.budget_tokens / self.input_tokens)
        together = min(most, 1 + rate * (rest + ahead))
        # More prompts than a step takes wait their turn (M/D/1).
        full = busy / most if self.chunks == 1 else busy
        queued = rest + ahead + full / (2 * (1 - full)) * long * self.chunks
        own = self._own_s(step, prompt, together)
        return Times(
            tpot_s=each / gained,
            tokens_a_step=gained,
            ttft_s=own + queued,
            step_s=step,
            prompts_a_step=rate * each,
            prompt_s=prompt,
            own_s=own,
            queued_s=queued,
            no_room_s=0.0,
            decoding=decoding * self.replicas,
            requests_per_s=requests_per_s,
        )
