"""Routing decisions with the candidates that were compared: sampled decisions, and decisions of late and retried
requests.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from fairlead.reports.decisions import Attempt, CandidateScore, Continuation, DecisionReason, KeptFor, RequestOutcome, ShadowChoice
from fairlead.routing.explanations.fates import whole_story
from fairlead.routing.explanations.grounds import ground_of
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.sessions import SessionSummary
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, HOSTILE, INSTANCES


def decisions(now: datetime, sessions: Sequence[SessionSummary]) -> list[RoutingDecision]:
    found = []
    reasons = tuple(map(DecisionReason, ("prefix-affinity", "session-bound", "least-loaded", "prefix-outweighed", "hotspot-migrated")))
    for number in range(120):
        random = Random(1000 + number)
        pool = CHAT if number % 3 else CODE
        mine = [one for one in sessions if one.pool == pool]
        prompt = 1200 + random.randrange(30000)
        candidates = []
        for name in random.sample(INSTANCES[pool], 3):
            hit = int(prompt * random.random() * 0.9) // 512 * 512
            pending = random.randrange(20000)
            terms = {
                "wait_seconds": pending / 6250,
                "rest_seconds": 0.0,
                "weighted_prefill_seconds": (prompt - hit) / 6250,
                "kv_seconds": 0.1,
                "prefill_seconds": (prompt - hit) / 6250,
                "decode_tokens": 0.0,
            }
            candidates.append(
                CandidateScore(
                    instance=name,
                    hit_tokens=hit,
                    miss_tokens=prompt - hit,
                    pending_tokens=pending,
                    predicted_ttft_seconds=(prompt - hit + pending) / 6250,
                    total=(prompt - hit + pending) / 6250 + 0.1,
                    terms=terms,
                )
            )
        ranked = sorted(candidates, key=lambda one: one.total or 0.0)
        ground = ground_of(BUILT_IN.terms("fairlead"), "lowest-cost", {"affinity": 1.0, "in_time_seconds": 4.5})
        decision = RoutingDecision(
            id=f"d-{number:04d}",
            pool=pool,
            request=f"req-{number:05d}",
            session=HOSTILE if number == 2 else mine[number % len(mine)].session,
            at=now - timedelta(seconds=2 + number * 21),
            router=f"router-{number % 2}",
            policy="fairlead",
            table_version=214,
            chosen=ranked[0].instance,
            runner_up=ranked[1].instance,
            reason=reasons[number % len(reasons)],
            prompt_tokens=prompt,
            queued_seconds=random.random() * 0.4,
            ttft_seconds=ranked[0].predicted_ttft_seconds * (0.8 + random.random() * 0.4),
            sample_rate=0.05,
            candidates=ranked,
            rule=ground.rule,
            terms=list(ground.terms),
            parts=list(ground.parts),
            limits=list(ground.limits),
            considered=len(INSTANCES[pool]),
            passed_over=None,
            served_by=ranked[0].instance,
            named="default_user_id" if number == 4 else None,
            trace=f"{number:032x}" if number % 2 else None,
        )
        if number % 12 == 5:
            lost = Attempt(instance=ranked[0].instance, failure="lost", after_seconds=0.25)
            went_on = Continuation(
                source=ranked[0].instance,
                target=ranked[1].instance,
                why="lost",
                after_seconds=0.25,
                carried_tokens=12,
                computed_tokens=prompt + 12,
                gap_seconds=0.4,
            )
            if number % 24 == 5:
                decision = replace(decision, kept=KeptFor.RETRIED, attempts=(lost,), continuations=(went_on,))
            else:
                decision = replace(decision, kept=KeptFor.RETRIED, attempts=(lost,), served_by=ranked[1].instance)
        elif number % 12 == 3:
            advised = ShadowChoice(policy="min-ttft", target=ranked[1].instance, predicted_ttft_seconds=0.4, hit_tokens=0)
            decision = replace(decision, shadows=(advised, ShadowChoice(policy="ear", target=None)))
        elif number % 12 == 7:
            decision = replace(decision, kept=KeptFor.LATE, ttft_target_seconds=(decision.ttft_seconds or 0.0) / 2)
        if decision.kept is not KeptFor.SAMPLE:
            decision = replace(decision, outcome=RequestOutcome.SERVED, sample_rate=1.0)
        found.append(replace(decision, explanation=whole_story(decision, decision)))
    return found
