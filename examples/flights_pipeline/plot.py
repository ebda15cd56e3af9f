"""The picture: how late each airline's flights left, day by day."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

PATIENCE_S = 30.0
FIRST_DAY, DAYS = date(2013, 1, 1), 365
# Minutes at which the colours end, and flights in a year below which an airline has no line of its own.
LATEST_MIN = 60
FEWEST = 1_000

Day = dict[str, Any]


def read_values(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """The values that a consumer under read_committed reads."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plot",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: list[bytes] = []
    ended = 0
    while ended < partitions:
        messages = consumer.consume(10_000, PATIENCE_S)
        if not messages:
            raise TimeoutError(f"{topic} gave neither a record nor its end in {PATIENCE_S:g} s")
        for message in messages:
            if message.error() is None:
                values.append(message.value())
            else:
                ended += 1
    consumer.close()
    return values


def read_days(bootstrap: str, topic: str, partitions: int) -> list[Day]:
    """The days that a consumer under read_committed reads."""
    return [json.loads(value) for value in read_values(bootstrap, topic, partitions)]


def draw(days: Sequence[Day], path: Path) -> None:
    """A line for each airline, the latest at the top; over them how much of each day's flying met foul weather."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    flights: dict[str, int] = {}
    for day in days:
        flights[day["airline"]] = flights.get(day["airline"], 0) + day["flights"]
    airlines = [airline for airline, count in flights.items() if count >= FEWEST]
    late, flown = np.zeros((len(airlines), DAYS)), np.zeros((len(airlines), DAYS))
    foul, all_flights = np.zeros(DAYS), np.zeros(DAYS)
    for day in days:
        at = (date.fromisoformat(day["day"]) - FIRST_DAY).days
        foul[at] += day["in_foul_weather"]
        all_flights[at] += day["flights"]
        if day["airline"] in airlines:
            line = airlines.index(day["airline"])
            late[line, at] += day["minutes_late"]
            flown[line, at] += day["flown"]
    means = np.divide(late, flown, out=np.full(late.shape, np.nan), where=flown > 0)
    order = np.argsort(-late.sum(axis=1) / flown.sum(axis=1))

    plt.rcParams.update({"font.size": 8, "font.family": "DejaVu Sans", "axes.edgecolor": "#bbbbbb"})
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(8.6, 3.9), dpi=120, sharex=True, height_ratios=(1, 5), layout="constrained"
    )
    above.bar(range(DAYS), 100 * foul / all_flights, width=1.0, color="#4477aa")
    above.set_ylabel("foul\nweather", rotation=0, ha="right", va="center")
    above.set_yticks([50, 100], ["50 %", "100 %"])
    above.yaxis.tick_right()
    above.spines[["top", "left"]].set_visible(False)
    above.set_title(
        "How late flights left New York in 2013, by airline and day: "
        f"{int(all_flights.sum()):,} flights, each counted once",
        loc="left",
        fontsize=9,
    )
    image = below.imshow(
        means[order], aspect="auto", cmap="magma_r", vmin=0, vmax=LATEST_MIN, interpolation="nearest"
    )
    below.set_yticks(
        range(len(airlines)), [airlines[line].split(" Inc")[0].split(" Co")[0] for line in order]
    )
    starts = [(date(2013, month, 1) - FIRST_DAY).days for month in range(1, 13)]
    below.set_xticks(starts, [date(2013, month, 1).strftime("%b") for month in range(1, 13)], ha="left")
    below.tick_params(length=0)
    bar = figure.colorbar(image, ax=below, extend="max", pad=0.01, aspect=25)
    bar.set_label("mean minutes late")
    bar.outline.set_visible(False)  # type: ignore[operator]
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)
