"""What the report of ``convergence`` shows: error against step for each activation."""

from __future__ import annotations

from pathlib import Path

from ..cells import Result
from ..drawing import axes, band, figure, legend, save, style
from ..experiment import Picture, Table, Text
from ..summaries import Value, mean_spread, text
from ..tables import QUICK_WORDS
from .names import shown

Best = dict[str, list[Result]]  # each activation's runs, at its best learning rate

AT = (0.1, 0.5, 1.0, 2.0, 5.0)  # passes after which the table gives the error


def errors(results: list[Result]) -> list[list[Value]]:
    """The error on the test images, in per cent, of each run at each measurement."""
    return [[100 * (1 - r["accuracy"][0]) for r in result.history] for result in results]


def curves_picture(network: str, best: Best) -> Picture:
    """Error against step, the mean over seeds with its spread."""

    def draw(path: Path) -> None:
        from matplotlib.ticker import LogLocator, NullLocator

        picture = figure(8, 4.5)
        axis = axes(picture)[0, 0]
        for activation, results in best.items():
            steps = results[0].curves["steps"]
            band(axis, steps, errors(results), shown(activation), **style(activation))
        axis.set(xlabel="step", ylabel="test error, %", yscale="log", title=network.upper())
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_locator(NullLocator())
        legend(axis)
        save(picture, path)

    title = f"{network.upper()} on MNIST: error on the test images against step"
    return Picture(network, title, draw)


def errors_table(network: str, best: Best) -> Table:
    """The error after some passes over the training images, for those that were measured."""
    settings = next(iter(best.values()))[0].cell.settings
    parts, epochs = settings["parts"], settings["epochs"]
    at = [epoch for epoch in (round(passes * parts) for passes in AT) if 1 <= epoch <= epochs]
    rows = []
    for activation, results in best.items():
        by_run = errors(results)
        rate = f"{results[0].cell.settings['lr']:g}"
        rows.append(
            [shown(activation), rate, *(text([run[i - 1] for run in by_run], 2) for i in at)]
        )
    passes = [f"after {epoch / parts:g}" for epoch in at]
    title = f"{network.upper()}: test error, %, after so many passes over the training images"
    return Table(title, ["", "learning rate", *passes], rows)


def leading_words(network: str, best: Best) -> Text:
    """How often the unit has the least error, beside the paper's "at almost all steps"."""
    if "deu" not in best or len(best) < 2:
        return Text(f"{network.upper()}: nothing to compare the unit with.")
    means = {
        activation: [mean_spread(values)[0] for values in zip(*errors(results), strict=True)]
        for activation, results in best.items()
    }
    count = len(means["deu"])
    leads = sum(
        all(means["deu"][i] <= other[i] for name, other in means.items() if name != "deu")
        for i in range(count)
    )
    below = sum(means["deu"][i] <= means["ReLU"][i] for i in range(count) if "ReLU" in means)
    words = (
        f"{network.upper()}: of {count} measurements the unit has the least mean error of all "
        f"{len(means)} activations in {leads}, and no more than ReLU in {below}."
    )
    if any(result.cell.quick for results in best.values() for result in results):
        return Text(f"{words} {QUICK_WORDS}")
    holds = "This holds here too."
    if leads < 0.8 * count:
        holds = "Here this does not hold."
        rates = {name: f"{own[0].cell.settings['lr']:g}" for name, own in best.items()}
        if rates["deu"] != rates.get("ReLU", rates["deu"]):
            holds += (
                " Most likely because each has the learning rate that is best in the end, "
                f"{rates['deu']} for units and {rates['ReLU']} for ReLU, and the lower one is "
                "slower at first."
            )
    return Text(f'{words} The paper: "DEUs are better at almost all steps". {holds}')
