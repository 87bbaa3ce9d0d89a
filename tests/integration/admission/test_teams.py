"""Teams are set up with their rights, and what that means for all of them is said."""

import asyncio
from typing import Any

import pytest
from admission_harness import Admission, add_node


async def test_a_team_is_set_up_and_shown_with_its_limits(lone_admission: Admission) -> None:
    body = {"limit": 8, "guarantee": 4, "weight": 2.5, "max_queued": 10, "allowances": {"urgent": 1}}
    await lone_admission.set_team("team-a", **body)
    shown = await lone_admission.get("/v1/teams/team-a")
    assert {name: shown[name] for name in body} == body
    assert (await lone_admission.client.get("/v1/teams/nosuch")).status_code == 404
    for wrong, field in (
        ({"limit": -1}, "limit"),
        ({"limit": 1.5}, "limit"),
        ({"limit": "101%"}, "limit"),
        ({"limit": "50"}, "limit"),
        ({"limit": "20%", "guarantee": "30%"}, "guarantee"),
        ({"class_limits": {"low": "x%"}}, "class_limits.low"),
        ({"limit": 2, "guarantee": 3}, "guarantee"),
        ({"class_limits": {"nosuch": 1}}, "class_limits.nosuch"),
        ({"class_limits": {"low": -1}}, "class_limits.low"),
        ({"allowances": {"normal": 1}}, "allowances.normal"),
        ({"weight": -1}, "weight"),
        ({"limitt": 1}, "limitt"),
    ):
        answer = await lone_admission.client.put("/v1/teams/team-a", json=wrong)
        assert answer.status_code == 422
        assert [each["field"] for each in answer.json()["fields"]] == [field]
    assert await lone_admission.get("/v1/teams/team-a") == shown
    assert (await lone_admission.client.put("/v1/teams/Team%20A", json={})).status_code == 422


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "must not be empty"),
        ("a" * 300, "must have at most 63 characters; this has 300"),
        ("Vision", "must be of lower case letters, digits, '_', '.' and '-', a letter or digit first and last"),
        ("a/b", "must be of lower case letters, digits, '_', '.' and '-', a letter or digit first and last"),
    ],
)
async def test_a_name_that_is_none_of_a_team_is_refused_with_what_is_wrong(
    lone_admission: Admission, name: str, message: str
) -> None:
    answers = [
        await lone_admission.client.put(f"/v1/teams/{name}", json={}),
        await lone_admission.client.post("/v1/tokens", json={"role": "viewer", "team": name}),
        await lone_admission.submit(team=name),
    ]
    for answer in answers:
        assert answer.status_code == 422
        assert answer.json()["fields"] == [{"field": "team", "message": message}]


async def test_rights_in_per_cent_of_the_pool_are_kept_as_they_were_given(lone_admission: Admission) -> None:
    body = {
        "limit": "50%", "guarantee": "12.5%", "user_limit": "25%", "class_limits": {"low": "10%", "high": 2},
        "allowances": {"urgent": "5%", "not_preemptible": 1},
    }  # fmt: skip
    await lone_admission.set_team("team-a", **body)
    shown = await lone_admission.get("/v1/teams/team-a")
    assert {name: shown[name] for name in body} == body
    await lone_admission.set_team("team-a", **body | {"limit": 8, "guarantee": "0%"})
    shown = await lone_admission.get("/v1/teams/team-a")
    assert (shown["limit"], shown["guarantee"], shown["user_limit"]) == (8, 0, "25%")


async def _set(admission: Admission, team: str, **body: Any) -> dict[str, Any]:
    answer = await admission.client.put(f"/v1/teams/{team}", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_guarantees_in_per_cent_come_to_at_most_the_whole_pool(lone_admission: Admission) -> None:
    await _set(lone_admission, "speech", guarantee="50%")
    await _set(lone_admission, "vision", guarantee="40%")
    answer = await lone_admission.client.put("/v1/teams/nightly", json={"guarantee": "12.5%"})
    assert answer.status_code == 422
    message = "with those of speech (50%), vision (40%) this is 102.5% of the pool; together they are at most 100%"
    assert answer.json()["fields"] == [{"field": "guarantee", "message": message}]
    assert (await lone_admission.client.get("/v1/teams/nightly")).status_code == 404
    await _set(lone_admission, "nightly", guarantee="10%")
    await _set(lone_admission, "speech", guarantee="45%")
    await _set(lone_admission, "nightly", guarantee="15%")


async def test_two_guarantees_that_are_given_at_once_are_summed_all_the_same(lone_admission: Admission) -> None:
    answers = await asyncio.gather(
        *(lone_admission.client.put(f"/v1/teams/t{number}", json={"guarantee": "30%"}) for number in range(8))
    )
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [422] * 5


async def test_guarantees_that_no_pool_of_this_size_can_keep_are_taken_and_said(lone_admission: Admission) -> None:
    assert (await _set(lone_admission, "vision", guarantee=100))["notes"][1:] == []
    await add_node(lone_admission, "n1", 4)
    assert (await _set(lone_admission, "vision", guarantee=2))["notes"] == []
    assert (await _set(lone_admission, "speech", guarantee="50%"))["notes"] == []
    assert (await _set(lone_admission, "nightly", guarantee=1))["notes"] == [
        "the guarantees of all teams come to 5 GPUs and the pool has 4: they cannot all be kept at once"
    ]
    # It is said to whoever changes a guarantee, and not of what was there before.
    assert (await _set(lone_admission, "nightly", guarantee=1, weight=2))["notes"] == []
    assert (await _set(lone_admission, "speech", guarantee="50%", limit=4))["notes"] == []
    assert len((await _set(lone_admission, "speech", guarantee="75%"))["notes"]) == 1


async def test_a_guarantee_that_alone_is_more_than_the_pool_is_said_to_be(lone_admission: Admission) -> None:
    await add_node(lone_admission, "n1", 4)
    await _set(lone_admission, "vision", weight=1)
    assert (await _set(lone_admission, "vision", guarantee=5))["notes"] == [
        "the guarantee is 5 GPUs and the pool has 4: it cannot be kept in full"
    ]


async def test_the_first_team_that_is_set_up_says_what_the_others_lose(lone_admission: Admission) -> None:
    await lone_admission.submitted(team="speech")
    (note,) = (await _set(lone_admission, "vision", limit=2))["notes"]
    assert note == (
        "this is the first team that is set up: from now on teams have only what is set up for them. Without an "
        "allowance for hard_groups, high, not_preemptible, urgent: default, speech. Teams that are not known may not "
        "submit"
    )
    assert (await _set(lone_admission, "vision", limit=3))["notes"] == []
    assert (await lone_admission.get("/v1/teams/vision"))["notes"] == []


async def test_a_team_is_shown_with_the_gpus_that_per_cent_are_of(lone_admission: Admission) -> None:
    await _set(lone_admission, "vision", limit="50%")
    assert (await lone_admission.get("/v1/teams/vision"))["pool_gpus"] == 0
    await add_node(lone_admission, "n1", 4)
    await lone_admission.database.execute("UPDATE gpus SET condition = 'lost' WHERE gpu_index < 2")
    await lone_admission.database.execute("UPDATE gpus SET mig_profile = '1g.5gb' WHERE gpu_index = 0")
    assert {each["pool_gpus"] for each in await lone_admission.get("/v1/teams")} == {3}
    await lone_admission.database.execute("UPDATE nodes SET state = 'DEAD'")
    assert (await lone_admission.get("/v1/teams/vision"))["pool_gpus"] == 0
