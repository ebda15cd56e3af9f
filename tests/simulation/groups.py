"""What all members of a group were told: the reference for what each of them may believe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.commits import Commits
from tests.simulation.work import Place, Work


@dataclass(eq=False)
class Life:
    """One consumer, from its start to its end."""

    number: int
    """The numbers rise from one consumer to the next."""
    instance_id: str | None = None
    member_id: str = ""
    epoch: int = -1
    """The generation's number, or the member's epoch."""
    highest_epoch: int = -1
    owned: dict[Place, int | None] = field(default_factory=dict)
    """What it reads, with its offsets; None while it doesn't know where to begin."""
    held: set[Place] = field(default_factory=set)
    """What it owns, and what it was told to give up and hasn't yet reported as given up."""
    lease_s: float = -1.0
    """Until this time, as far as it knows, its session can't have ended."""
    is_over: bool = False
    others: dict[Place, int] = field(default_factory=dict)
    """For each partition it was given, the epoch in which another member had it before."""

    @property
    def name(self) -> str:
        return self.instance_id or self.member_id

    def gives_up_all(self) -> None:
        self.owned.clear()
        self.held.clear()


class GroupWork:
    """`may_have_two`: a coordinator that can't know that it was replaced answers, from what it knows, whatever needs no
    write. What is written must still be right.

    If acknowledged data may be lost, a group may have been set back, and little can be said about it.
    """

    def __init__(
        self,
        work: Work,
        name: str,
        places: Sequence[Place],
        topic_ids: dict[str, bytes],
        *,
        may_have_two: bool = False,
    ) -> None:
        self.work = work
        self.may_have_two = may_have_two
        self.name = name
        self.places = places
        self.topic_ids = topic_ids
        self.owners: dict[Place, Life] = {}
        """Who was last told that it owns the partition."""
        self._owned_in: dict[Place, int] = {}
        """The epoch in which it was told."""
        self.instances: dict[str, Life] = {}
        """Who was last told that it is this static member."""
        self.generations: dict[int, dict[Place, str]] = {}
        """For a classic group, who owned what in each generation."""
        self.members = 0
        """How many members haven't retired."""
        self.newest_epoch = -1
        """The highest epoch that anybody was told."""

    @property
    def topics(self) -> list[str]:
        return [*self.topic_ids]

    def commits(self, place: Place) -> Commits:
        return self.work.commits_of(self.name, place)

    def complain_unless_two(self, life: Life, what: str) -> None:
        """Complain about something that a former coordinator may say while another one exists."""
        if not self.may_have_two:
            self.complain(life, what)

    def complain(self, life: Life, what: str) -> None:
        if not self.work.may_lose:
            self.work.complain(f"{self.name}, {life.name} in {life.epoch}: {what}")

    def given(self, life: Life, places: Iterable[Place], now_s: float) -> None:
        """Note that a member was told that exactly these are its own."""
        for place in places:
            owner = self.owners.get(place)
            if owner is not None and owner is not life and place in owner.held and now_s < owner.lease_s:
                self.complain_unless_two(life, f"is given {place}, which {owner.name} has in {owner.epoch}")
            if owner is not None and owner.name != life.name:
                life.others[place] = self._owned_in[place]
            self.owners[place] = life
            self._owned_in[place] = life.epoch
            if owner is not life:
                self.work.count("assignments")
        self.newest_epoch = max(self.newest_epoch, life.epoch)
        if life.instance_id is not None:
            self.instances[life.instance_id] = life

    def of_generation(self, life: Life, places: Iterable[Place]) -> None:
        """Check that in a classic group's generation each partition has one owner."""
        owners = self.generations.setdefault(life.epoch, {})
        for place in places:
            owner = owners.setdefault(place, life.name)
            if owner != life.name:
                self.complain(life, f"owns {place}, and so does {owner}")

    def lost(self, life: Life) -> list[Place]:
        """Return what it believes to own although another one was given it."""
        return [place for place in life.owned if self.owners[place] is not life]

    def is_replaced(self, life: Life) -> bool:
        """Return True if another one is this static member by now."""
        if life.instance_id is None:
            return False
        return self.instances.get(life.instance_id, life).number > life.number
