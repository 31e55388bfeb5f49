"""The addresses at which routers say that they can be asked: an impossible address is not sent to other routers, but
the rest of its report counts.
"""

from dataclasses import replace

import pytest

from fairlead.reports.batches import ROW_KINDS, AskAddress, Report
from fairlead_api.reports.plausibility import plausible

GOOD = AskAddress(host="10.0.0.7", port=9100, secret="s" * 64, protocol=2)
AGES = {name: 60.0 for name, kind in ROW_KINDS.items() if kind.kept}


def kept(address: AskAddress) -> tuple[AskAddress | None, int]:
    report = Report(id="r", router="router-0", sent_at=1.7e9, asked_at=address)
    good, dropped = plausible(report, AGES, 1.7e9, 0.0)
    return good.asked_at, dropped.total()


@pytest.mark.parametrize("host", ["10.0.0.7", "2001:db8::7", "fe80::1%eth0", "router-0.routers.fairlead.svc"])
def test_addresses_of_every_kind_are_kept(host: str) -> None:
    address = replace(GOOD, host=host)
    assert kept(address) == (address, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": ""},
        {"host": "h" * 254},
        {"host": "10.0.0.7/x"},
        {"host": "a\0b"},
        {"host": "a b"},
        {"port": 0},
        {"port": 65536},
        {"port": -1},
        {"secret": "short"},
        {"secret": "s" * 2000},
        {"protocol": -1},
    ],
    ids=str,
)
def test_what_can_be_no_address_is_left_out_and_counted(wrong: dict[str, object]) -> None:
    assert kept(replace(GOOD, **wrong)) == (None, 1)  # type: ignore[arg-type]
