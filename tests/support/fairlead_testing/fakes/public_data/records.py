"""Made-up rejections, audit entries and API tokens."""

import hashlib
from datetime import datetime, timedelta

from fairlead.reports.rejections import RejectionReason
from fairlead.tables import DEFAULT_CLASS
from fairlead_client.resources.access import AccessRole, TokenItem
from fairlead_client.resources.audit import AuditAction, AuditEntry, AuditKind, AuditResult
from fairlead_client.resources.rejections import RejectionGroup, RejectionSample
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, HOSTILE, noise


def rejections(start: datetime, end: datetime) -> list[RejectionGroup]:
    texts = (
        (
            CHAT,
            RejectionReason.PREDICTED_TTFT,
            412,
            "Raise spec.replicas, or earlyRejection.headroom if a slower first token is acceptable.",
        ),
        (CHAT, RejectionReason.QUEUE_FULL, 37, "The router's queue is full for seconds at a time: raise spec.replicas."),
        (CODE, RejectionReason.NO_INSTANCES, 5, "No instance served: look at the pool's conditions."),
    )
    total = sum(count for _, _, count, _ in texts)
    found = []
    for pool, reason, count, suggestion in texts:
        line = [int(noise(reason.value, bucket) * count / 20 * (3 if 14 < bucket < 24 else 0.4)) for bucket in range(40)]
        line[18] += count - sum(line)
        samples = [
            RejectionSample(
                at=end - timedelta(minutes=4 * n + 2),
                request=f"req-9{n:04d}",
                prompt_tokens=18000 + n * 700,
                retry_after_seconds=3.0 + n,
                predicted_ttft_seconds=None if pool == CODE else 6.2 + n,
            )
            for n in range(3)
        ]
        found.append(
            RejectionGroup(
                pool=pool,
                reason=reason,
                status=503 if pool == CODE else 429,
                count=count,
                share=count / total,
                first_at=start + timedelta(minutes=7),
                last_at=end - timedelta(minutes=2),
                sparkline=line,
                samples=samples,
                suggestion=suggestion,
                priority_class="batch" if reason is RejectionReason.PREDICTED_TTFT else DEFAULT_CLASS,
            )
        )
    return found


def audit(now: datetime) -> list[AuditEntry]:
    found = []
    for number in range(60, 0, -1):
        kind = number % 4
        action = (AuditAction.PLAN_APPLIED, AuditAction.LOGIN, AuditAction.TOKEN_CREATED, AuditAction.POOL_SPEC_CHANGED)[kind]
        found.append(
            AuditEntry(
                id=number,
                at=now - timedelta(minutes=(60 - number) * 7 + 1),
                actor=("ada", "grace", HOSTILE, "operator")[kind] if number == 58 else ("ada", "grace", "ada", "operator")[kind],
                role=("operator", "viewer", "admin", "system-operator")[kind],
                source="127.0.0.1",
                action=action,
                object=CHAT if kind in (0, 3) else "web-session" if kind == 1 else "token/ci",
                reason="Evening peak" if kind == 0 else None,
                before={"replicas": 6, "routing": {"policy": "ear"}} if kind in (0, 3) else None,
                after={"replicas": 8, "routing": {"policy": "dualmap"}} if kind in (0, 3) else None,
                result=AuditResult.DENIED if number % 13 == 0 else AuditResult.OK,
                request_id=f"r-{number:06d}",
                plan=f"p-{number:04d}" if kind == 0 else None,
                kind=AuditKind.SYSTEM if kind == 3 else AuditKind.HUMAN,
                chain=hashlib.sha256(str(number).encode()).hexdigest(),
            )
        )
    return found


def tokens(now: datetime) -> list[TokenItem]:
    return [
        TokenItem(
            id="t-1",
            name="ci",
            role=AccessRole.VIEWER,
            created_at=now - timedelta(days=20),
            created_by="ada",
            expires_at=now + timedelta(days=70),
            last_used_at=now - timedelta(minutes=8),
            revoked_at=None,
        ),
        TokenItem(
            id="t-2",
            name="old laptop",
            role=AccessRole.ADMIN,
            created_at=now - timedelta(days=80),
            created_by="ada",
            expires_at=now + timedelta(days=10),
            last_used_at=None,
            revoked_at=now - timedelta(days=2),
        ),
    ]
