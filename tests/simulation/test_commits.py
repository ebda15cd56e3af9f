"""What a fetch of an offset may return after given commits: a test of the simulation's own judge."""

from __future__ import annotations

from tests.simulation.commits import NO_OFFSET, Commit, Commits
from tests.simulation.groups import GroupWork, Life
from tests.simulation.work import Place, Work

PLACE: Place = ("orders", 0)


def committed(commits: Commits, offset: int, began_s: float, ended_s: float) -> Commit:
    commit = commits.begin(offset, began_s, "a member")
    commit.in_force(ended_s)
    return commit


def test_an_offset_that_nobody_committed_is_an_anomaly() -> None:
    commits = Commits()
    known = committed(commits, 5, 1, 2)
    assert commits.complaint(5, known.tag, 3, 4) is None
    assert commits.complaint(6, known.tag, 3, 4) is not None
    assert commits.complaint(6, "another's", 3, 4) is not None
    assert commits.complaint(6, "another's", 3, 4, may_lose=True) is not None


def test_an_acknowledged_commit_stays_unless_it_may_be_lost() -> None:
    commits = Commits()
    assert commits.complaint(NO_OFFSET, "", 0, 1) is None
    committed(commits, 5, 1, 2)
    assert commits.complaint(NO_OFFSET, "", 1.5, 3) is None  # it may have come first
    assert commits.complaint(NO_OFFSET, "", 3, 4) is not None
    assert commits.complaint(NO_OFFSET, "", 3, 4, may_lose=True) is None


def test_an_older_commit_may_be_there_only_as_long_as_the_newer_one_is_on_its_way() -> None:
    commits = Commits()
    older = committed(commits, 5, 1, 2)
    committed(commits, 6, 3, 5)
    assert commits.complaint(5, older.tag, 4, 6) is None
    assert commits.complaint(5, older.tag, 6, 7) is not None


def test_either_of_two_concurrent_commits_may_be_the_later_one() -> None:
    commits = Commits()
    both = [committed(commits, 5, 1, 4), committed(commits, 6, 2, 3)]
    for each in both:
        assert commits.complaint(each.offset, each.tag, 5, 6) is None


def test_a_commit_whose_answer_was_lost_counts_once_it_is_seen() -> None:
    commits = Commits()
    older = committed(commits, 5, 1, 2)
    unknown = commits.begin(6, 3, "a member")
    assert commits.complaint(5, older.tag, 4, 5) is None
    assert commits.complaint(6, unknown.tag, 6, 7) is None
    assert commits.complaint(5, older.tag, 8, 9) is not None


def test_a_commit_that_was_refused_is_never_there() -> None:
    commits = Commits()
    refused = commits.begin(5, 1, "a member")
    refused.is_refused = True
    assert commits.complaint(5, refused.tag, 3, 4) is not None


def test_a_transactional_commit_exists_from_its_end_on() -> None:
    commits = Commits()
    pending = commits.begin(5, 1, "a member", in_transaction=True)
    pending.written(2)
    assert commits.complaint(5, pending.tag, 3, 4) is not None
    pending.visible_s = 5
    assert commits.complaint(5, pending.tag, 4, 6) is None
    pending.in_force(7)
    assert commits.complaint(NO_OFFSET, "", 8, 9) is not None


def test_a_later_commit_counts_though_the_transaction_of_an_earlier_one_ends_after_it() -> None:
    commits = Commits()
    pending = commits.begin(5, 1, "a member", in_transaction=True)
    pending.written(2)
    later = committed(commits, 6, 3, 4)
    pending.visible_s = 5
    pending.in_force(6)
    assert commits.complaint(6, later.tag, 7, 8) is None
    assert commits.complaint(5, pending.tag, 7, 8) is not None


def test_a_partition_is_given_to_another_member_only_once_its_owners_session_may_be_over() -> None:
    for now_s, has_given_up, complaints in ((5.0, False, 1), (5.0, True, 0), (11.0, False, 0)):
        group = GroupWork(Work(), "a group", [PLACE], {})
        owner, other = Life(1, member_id="owner"), Life(1, member_id="other")
        owner.held = {PLACE}
        group.given(owner, [PLACE], 1.0)
        owner.lease_s = 10.0
        if has_given_up:
            owner.gives_up_all()
        group.given(other, [PLACE], now_s)
        assert len(group.work.anomalies) == complaints


def test_a_partition_has_one_owner_in_a_generation() -> None:
    group = GroupWork(Work(), "a group", [PLACE], {})
    for member_id, epoch in (("one", 1), ("other", 2), ("one", 2)):
        group.of_generation(Life(1, member_id=member_id, epoch=epoch), [PLACE])
    assert len(group.work.anomalies) == 1


def test_a_static_member_is_replaced_by_a_later_one_of_its_instance_id() -> None:
    group = GroupWork(Work(), "a group", [PLACE], {})
    first, second = Life(1, instance_id="instance"), Life(2, instance_id="instance")
    group.given(first, [], 0)
    assert not group.is_replaced(first)
    assert not group.is_replaced(second)
    group.given(second, [], 1)
    assert group.is_replaced(first)
    assert not group.is_replaced(second)
