"""What the members of a group were told, all together: what each of them may believe is held against it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.commits import Commits
from tests.simulation.work import Place, Work


@dataclass(eq=False)
class Life:
    """One consumer, from its start to its end."""

    number: int
    """Those of one consumer after the other rise."""
    instance_id: str | None = None
    member_id: str = ""
    epoch: int = -1
    """The generation's number, or the member's epoch."""
    highest_epoch: int = -1
    owned: dict[Place, int | None] = field(default_factory=dict)
    """What it reads, with the offset where it is; None as long as it doesn't know where to begin."""
    held: set[Place] = field(default_factory=set)
    """What it owns, and what it was told to give up and hasn't yet said that it did."""
    lease_s: float = -1.0
    """Until then its session can't have ended, for all that it knows."""
    is_over: bool = False
    others: dict[Place, int] = field(default_factory=dict)
    """Of what it was given, the epoch in which another one had it before."""

    @property
    def name(self) -> str:
        return self.instance_id or self.member_id

    def gives_up_all(self) -> None:
        self.owned.clear()
        self.held.clear()


class GroupWork:
    """`may_have_two`: a coordinator that can't know that it is none any more answers what needs nothing to be written,
    by what it knows; what is written has to be right all the same.

    Where what was acknowledged may be lost, a group may have been set back, and little can be said of it."""

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
        """Who was told last that it owns the partition."""
        self._owned_in: dict[Place, int] = {}
        """In which epoch they were told."""
        self.instances: dict[str, Life] = {}
        """Who was told last that it is this static member."""
        self.generations: dict[int, dict[Place, str]] = {}
        """Of a classic group, who owned what in each."""
        self.members = 0
        """How many haven't retired."""
        self.newest_epoch = -1
        """The highest that anybody was told."""

    @property
    def topics(self) -> list[str]:
        return [*self.topic_ids]

    def commits(self, place: Place) -> Commits:
        return self.work.commits_of(self.name, place)

    def complain_unless_two(self, life: Life, what: str) -> None:
        """Of what one that was coordinator may say when another one is."""
        if not self.may_have_two:
            self.complain(life, what)

    def complain(self, life: Life, what: str) -> None:
        if not self.work.may_lose:
            self.work.complain(f"{self.name}, {life.name} in {life.epoch}: {what}")

    def given(self, life: Life, places: Iterable[Place], now_s: float) -> None:
        """A member was told that these are its own, and all that are."""
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
        """Of a classic group: in a generation each partition has one owner."""
        owners = self.generations.setdefault(life.epoch, {})
        for place in places:
            owner = owners.setdefault(place, life.name)
            if owner != life.name:
                self.complain(life, f"owns {place}, and so does {owner}")

    def lost(self, life: Life) -> list[Place]:
        """What it believes to own, and another was given."""
        return [place for place in life.owned if self.owners[place] is not life]

    def is_replaced(self, life: Life) -> bool:
        """Whether another one is this static member by now."""
        if life.instance_id is None:
            return False
        return self.instances.get(life.instance_id, life).number > life.number
