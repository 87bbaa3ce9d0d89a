"""What an executor knows of its cards: one that vanished is lost, and a driver without an answer loses none."""

from collections.abc import Sequence
from typing import cast

import pytest
from makeway_executor import inventory
from makeway_executor.inventory import Inventory
from makeway_runtime.devices.port import Devices, DevicesUnknown, GpuInfo


def card(uuid: str) -> GpuInfo:
    return GpuInfo(uuid=uuid, index=0, name="A100", type_name="A100-80GB", vram_mib=81920, reserved_mib=0)


class Driver:
    """Shows what the test says, and counts how often it is asked."""

    def __init__(self, *uuids: str) -> None:
        self.uuids: Sequence[str] | None = uuids
        self.asked = 0

    async def inventory(self) -> tuple[GpuInfo, ...]:
        self.asked += 1
        if self.uuids is None:
            raise DevicesUnknown("no answer")
        return tuple(card(uuid) for uuid in self.uuids)


async def read(driver: Driver) -> Inventory:
    made = Inventory(cast(Devices, driver))
    await made.read()
    return made


def shown(known: Inventory) -> dict[str, bool]:
    return {info.uuid: present for info, present in known.cards}


async def test_a_card_that_vanished_is_told_as_gone_until_it_is_back() -> None:
    driver = Driver("GPU-0", "GPU-1")
    known = await read(driver)
    for seen in (["GPU-1"], ["GPU-1"], []):
        driver.uuids = seen
        await known.read()
        assert shown(known) == {"GPU-0": False, "GPU-1": "GPU-1" in seen}
        assert known.present == tuple(seen)
    driver.uuids = ["GPU-0", "GPU-1"]
    await known.read()
    assert shown(known) == {"GPU-0": True, "GPU-1": True}


async def test_a_driver_that_gives_no_answer_loses_no_card() -> None:
    driver = Driver("GPU-0")
    known = await read(driver)
    driver.uuids = None
    await known.read()
    assert shown(known) == {"GPU-0": True}


async def test_no_run_starts_on_a_card_that_is_not_there() -> None:
    driver = Driver("GPU-0", "GPU-1")
    known = await read(driver)
    driver.uuids = ["GPU-0"]
    await known.read()
    assert known.missing(("GPU-0",)) == ""
    assert known.missing(("GPU-0", "GPU-1")) == "this node has no GPU GPU-1 now"
    assert known.missing(("GPU-9",)) == "this node has no GPU GPU-9 now"


async def test_the_driver_is_asked_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("GPU-0")
    known = await read(driver)
    await known.read_if_old()
    assert driver.asked == 1
    monkeypatch.setattr(inventory, "READ_AGAIN_SECONDS", 0.0)
    await known.read_if_old()
    assert driver.asked == 2
