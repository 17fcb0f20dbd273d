"""Command line, `lethe`: each verb is a function.

Slow imports happen within a verb, so that `lethe --help` takes a fraction of a second.
"""

import functools
import gc
import json
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer import Argument, Option

from harness import errors
from harness.base.messages import tell

app = typer.Typer(
    help="Erase memorised texts from a language model, and measure the cost.",
    epilog="lethe VERB --help says more. Exit codes: 0 done; 1 something failed; 2 wrong input; 130 interrupted.",
    subcommand_metavar="VERB [ARGS]",
    context_settings={"terminal_width": 100},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
Verb = Callable[..., int | None]
Given = Annotated[str, Argument(help="A miniature's name, a folder or a hub id.")]
Texts = Annotated[
    str, Argument(help='Texts (.jsonl, .csv, .txt), token ids (.npy), a folder, or the embedded "miniature".')
]
Unseen = Annotated[str | None, Option("--unseen", "--holdout", help="Texts of that kind that the model never saw.")]
Field = Annotated[str, Option(help="The key or column that has the text.")]
Tokenizer = Annotated[str | None, Option(help="The folder of the model's tokenizer, if it is not with the model.")]
Prefix = Annotated[int | None, Option(min=1, help="Tokens of each text that the model is given; default: half.")]
SequenceTokens = Annotated[int | None, Option(min=1, help="Tokens after which longer texts are cut.")]
SweepFile = Annotated[Path, Argument(help="The sweep file, such as sweeps/tradeoff.yaml.")]
Overrides = Annotated[list[str] | None, Option("--set", metavar="PATH=VALUE", help="Change a setting: seeds=[0,1].")]
Results = Annotated[Path, Option(help="The folder with the results of all sweeps.")]
Folder = Annotated[Path, Argument(help="A sweep's results: results/tradeoff.")]
RESULTS = Path("results")
ONLY = "Run only these trials: method=, model=, variant= (or only its name) or seed=; repeatable. The report has all."


INPUT_ERRORS = (errors.ConfigError, errors.DataError, errors.ModelError, errors.PluginError)


def verb(state: str = "", input_errors: tuple[type[Exception], ...] = INPUT_ERRORS) -> Callable[[Verb], Verb]:
    """Make a verb of a function that returns an exit code; None is 0.

    Args:
        state: Sentence on the work left after an interruption or a failure.
        input_errors: Errors in the verb's input, which end with 2; all others end with 1.
    """

    def register(function: Verb) -> Verb:
        @app.command()
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            for signum in (signal.SIGTERM, signal.SIGHUP):  # A scheduler, or a closed terminal, ends as Ctrl-C does.
                if signal.getsignal(signum) is signal.SIG_DFL:  # Not under nohup.
                    signal.signal(signum, signal.default_int_handler)
            try:
                code = function(**arguments) or 0
            except (errors.LetheError, OSError) as error:  # The system's own sentence names the file.
                code = 2 if isinstance(error, input_errors) else 1
                hints = [state] if isinstance(error, errors.StorageError) else []
                tell(error, *getattr(error, "__notes__", ()), *hints, is_error=True)
            except KeyboardInterrupt as error:
                tell(f"\nInterrupted. {state}", *getattr(error, "__notes__", ()), is_error=True)
                code = 128 + signal.SIGINT
            raise typer.Exit(code)

        return function

    return register


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lethe VERB ...` and return its exit code; without arguments run the process's and exit."""
    if argv is None:
        end(main(sys.argv[1:]))
    try:
        typer.main.get_command(app).main(list(argv) or ["--help"], prog_name="lethe")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def end(exit_code: int) -> NoReturn:
    """Exit the process."""
    gc.freeze()  # Else Python looks through every imported module for cycles before it ends, for a second or two.
    sys.exit(exit_code)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from harness.records.journal import DIRTY, own_commit

        commit = own_commit().removesuffix(DIRTY)
        packages = [f"{package} {version(package)}" for package in ("torch", "transformers", "ray")]
        own = f"Lethe {version('lethe')}{commit and f', commit {commit}'}"
        tell(own, f"Python {platform.python_version()}", *packages)
        raise typer.Exit


@app.callback()
def lethe(
    version: Annotated[bool, Option("--version", is_eager=True, callback=_show_version, help="Show versions.")] = False,
) -> None:
    """Erase memorised texts from a language model, and measure the cost."""


@verb(state="Measurements are kept only with --results.")
def audit(
    model: Given,
    texts: Texts,
    unseen: Unseen = None,
    field: Field = "text",
    tokenizer: Tokenizer = None,
    prefix_tokens: Prefix = None,
    sequence_tokens: SequenceTokens = None,
    sequences: Annotated[int | None, Option(min=1, help="Number of texts, drawn at random; default: 256.")] = None,
    original: Annotated[str | None, Option(help="The model before erasure, to compare an exported one with.")] = None,
    write_forget: Annotated[Path | None, Option(help="Only write the passages that are recited here.")] = None,
    attacks: Annotated[bool, Option("--attacks", help="Also extract, sample, shift prefixes, round weights.")] = False,
    report: Annotated[Path | None, Option(help="Write a page here: audit.html.")] = None,
    results: Annotated[Path | None, Option(help="Keep the measurements in this folder; default: keep nothing.")] = None,
) -> int:
    """Measure whether a model recites texts; nothing is erased."""
    from harness.base.files import write_whole
    from harness.commands.results import print_ranking, tell_unfinished
    from harness.drafting.first_sweep import run_audit
    from harness.drafting.given_texts import Given as GivenTexts
    from harness.reporting.files import page

    given = GivenTexts(model, texts, unseen, field, tokenizer, prefix_tokens, sequence_tokens, sequences)
    if write_forget is not None:
        from harness.drafting.twins import write_recited

        if unseen or sequences or original or attacks or report or results:
            raise errors.DataError("--write-forget takes only --field, --tokenizer and lengths; audit the file next.")
        tell(write_recited(given, write_forget))
        return 0
    with run_audit(given, results, attacks=attacks, original=original) as analysis:
        if tell_unfinished(analysis.results):
            return 1
        print_ranking(analysis)
        if any(recitation.needs_unseen_texts for recitation in analysis.ranked.recitations.values()):
            tell("For a surer answer, name texts of that kind that the model never saw: --unseen FILE.")
        if report is not None:
            tell(f"The report: {write_whole(report, page(analysis, is_kept=results is not None), 'the report')}")
    return 0


@verb(state="No file is written.")
def init(
    model: Given,
    texts: Texts,
    unseen: Unseen = None,
    retain: Annotated[str | None, Option(help="Texts like those to forget that the model has to keep.")] = None,
    utility: Annotated[str | None, Option(help="General texts, new to the model, to measure damage.")] = None,
    field: Field = "text",
    tokenizer: Tokenizer = None,
    prefix_tokens: Prefix = None,
    sequence_tokens: SequenceTokens = None,
    sequences: Annotated[int | None, Option(min=1, help="Number of texts, drawn at random.")] = None,
    no_probe: Annotated[bool, Option("--no-probe", help="Try no learning rates: write a usual one.")] = False,
    out: Annotated[Path | None, Option(help="The file to write; default: TEXTS.yaml in this folder.")] = None,
) -> None:
    """Write a commented sweep file for a model and texts; it plans without a fault."""
    from harness.base.files import usable_name
    from harness.drafting import first_sweep, given_texts

    name = usable_name(Path(texts).name.partition(".")[0])
    file = out or Path(f"{name}.yaml")
    if file.exists():
        raise errors.DataError(f"{file} exists, and is not overwritten: name another file with --out, or remove it.")
    given = given_texts.Given(model, texts, unseen, field, tokenizer, prefix_tokens, sequence_tokens, sequences)
    first_sweep.write_sweep_file(given, name, file, retain, utility, is_probed=not no_probe)


@verb(state="Finished models are kept: run the same command again to continue.")
def twins(
    model: Given,
    forget: Annotated[str, Option(help="Texts that one model is taught until it recites them.")],
    retain: Annotated[str, Option(help="Texts that both models read; the twin reads nothing else.")],
    out: Annotated[Path, Option(help="The folder of the models and of their sweep file.")],
    unseen: Unseen = None,
    utility: Annotated[str | None, Option(help="General texts, new to the model, that it continues.")] = None,
    field: Field = "text",
    tokenizer: Tokenizer = None,
    prefix_tokens: Prefix = None,
    sequence_tokens: SequenceTokens = None,
    seed: Annotated[list[int] | None, Option(help="Seed of a pair of twins; repeatable; default: 0.")] = None,
    epochs: Annotated[int, Option(min=1, help="Passes over the forget set at most.")] = 30,
    learning_rate: Annotated[float, Option(help="AdamW's.")] = 3e-4,
    batch: Annotated[int, Option(min=1, help="Forget texts in a step, with as many retain texts.")] = 8,
) -> None:
    """Teach a model texts, train its twin as long without them, and write a sweep file that erases them."""
    from harness.base.files import usable_name
    from harness.drafting import first_sweep, given_texts
    from harness.drafting.twins import make_twins, read_lessons
    from harness.settings import Training

    given = given_texts.Given(model, forget, unseen, field, tokenizer, prefix_tokens, sequence_tokens)
    training = Training(learning_rate=learning_rate, global_batch=batch, micro_batch=min(batch, 16))
    lessons = read_lessons(given, retain, utility, training, epochs)
    entries, levels = make_twins(lessons, out, seed or [0])
    texts, about = lessons.forget, dict[str, Any](models=tuple(entries), levels=tuple(levels), tokenizer=None)
    about |= {"prefix_tokens": texts.prefix_tokens, "sequence_tokens": texts.tokens_NT.shape[1]}
    taught = given._replace(model=entries[0]["id"], sequences=len(texts), **about)
    sweep_file, name = out / "sweep.yaml", usable_name(out.resolve().name)
    if sweep_file.exists():
        tell(f"{sweep_file} is there: it is kept.")
    else:
        first_sweep.write_sweep_file(taught, name, sweep_file, retain, utility, is_probed=False)


@verb(state="What is measured is kept: run the same command again to continue.", input_errors=(errors.ConfigError,))
def sweep(
    file: SweepFile,
    plan: Annotated[bool, Option("--plan", help="Show every trial and its state, and run nothing.")] = False,
    overrides: Overrides = None,
    only: Annotated[list[str] | None, Option(metavar="KEY=VALUE", help=ONLY)] = None,
    replace: Annotated[bool, Option("--replace", help="No longer show rows measured with other settings.")] = False,
    keep: Annotated[bool, Option("--keep", help="Keep the numbers of a plugin whose file has changed.")] = False,
    executor: Annotated[Literal["ray", "inline"], Option(help="inline: in this process, none isolated.")] = "ray",
    results: Results = RESULTS,
) -> int:
    """Run the unfinished trials of a sweep, and write its report."""
    from harness.planning.sweep_file import read_sweep_file

    sweep_file = read_sweep_file(file, overrides or ())  # Broken YAML is refused before torch is imported.
    from harness.planning.plan import choose_trials, plan_sweep

    planned = plan_sweep(sweep_file, overrides or ())
    part = choose_trials(planned, only or (), sweep_file)
    if plan:
        from harness.reporting.plan import print_plan

        print_plan(file, planned, part, results)
        return 0
    from harness.commands.results import tell_outcome
    from harness.running import run_planned

    outcome = run_planned(file, planned, part, executor=executor, results=results, replace_rows=replace, keep=keep)
    return tell_outcome(outcome, part)


@verb()
def prefetch(
    file: SweepFile,
    check: Annotated[bool, Option("--check", help="Only show what is here; fetch and convert nothing.")] = False,
    overrides: Overrides = None,
) -> int:
    """Fetch every model and data set of the hub that a sweep names, so that it runs offline."""
    from harness.commands.prefetch import hub_contents

    contents = hub_contents(file, overrides or ())
    if missing := sum(not content.provide(check=check) for content in contents):
        tell(f"{missing} of {len(contents)} are missing.{' Without --check they are fetched.' if check else ''}")
    else:
        tell("Everything from the hub is here: HF_HUB_OFFLINE=1 keeps every process from asking the hub.")
    return min(missing, 1)


@verb()
def collate(
    path: Annotated[Path, Argument(help="A sweep's results, or a table.csv.")],
    out: Annotated[Path | None, Option(help="Write the files here; default: results into themselves.")] = None,
) -> int:
    """Make tables and report again, from a journal or a table.csv; results are also copied to MLflow."""
    from harness.commands.results import collate_folder, collate_table

    if not path.exists():
        raise errors.DataError(f"{path} does not exist. Give a sweep's results folder or a table.csv.")
    return collate_folder(path, out) if path.is_dir() else collate_table(path, out)


@verb()
def verify(folder: Folder) -> int:
    """Compare a sweep's results with the published table that it reproduces, cell by cell.

    Ends with 0 only if every cell is compared and lies within its tolerance. Published figures of a collapsed model are
    set aside: only its collapse flag is compared.
    """
    from harness.commands.results import verify_table

    return verify_table(folder)


@verb()
def export(
    point: Annotated[str, Argument(help="SWEEP:VARIANT@STRENGTH (or @LEVEL), or a point's id in table.csv.")],
    out: Annotated[Path, Option(help="A new folder for the model.")],
    model: Annotated[str | None, Option(help="Where the original is now, if it was moved: a folder or hub id.")] = None,
    tokenizer: Tokenizer = None,
    adapter: Annotated[bool, Option("--adapter", help="Write only the LoRA adapter, for peft, unmerged.")] = False,
    results: Results = RESULTS,
) -> None:
    """Write a kept model as a from_pretrained folder, with its tokenizer and a certificate."""
    from harness.library import find_point, load_results
    from harness.models.resolving import resolve_model

    if tokenizer and not model:
        raise errors.DataError("--tokenizer is the tokenizer of --model: name that too.")
    folder, point_id = find_point(point, results)
    original = resolve_model(model, tokenizer) if model else None
    faults = load_results(folder).export(point_id, out, original, adapter_alone=adapter)
    what = "adapter" if adapter else "model"
    tell(f"The {what} of point {point_id} is in {out}, with its tokenizer and a certificate (README.md).", *faults)


@verb()
def diff(
    a: Annotated[str, Argument(help="A sweep's results, results/tradeoff, or a point, tradeoff:emso@2.")],
    b: Annotated[str, Argument(help="Results, or a point, to compare it with.")],
    csv: Annotated[Path | None, Option(metavar="FILE", help="Write every difference and number here.")] = None,
    results: Results = RESULTS,
) -> int:
    """Show the differences between two results: settings, versions, numbers. Ends with 1 if anything differs."""
    from harness.commands.results import print_differences

    return print_differences((a, b), results, csv)


@verb()
def power(
    folder: Folder,
    reference: Annotated[str | None, Option(help="The row to compare with; default: compare.reference.")] = None,
    difference: Annotated[float | None, Option(min=0.001, help="Look for this difference: 0.1 for 10 %.")] = None,
) -> None:
    """Show how more runs would separate the methods of a pilot."""
    from harness.commands.results import print_power

    print_power(folder, reference, difference)


@verb()
def check(
    plugin: Annotated[str, Argument(help="A plugin's file (methods/npo.py, or one of yours), or its name.")],
    settings: Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE", help="A setting: beta=0.1.")] = None,
    new: Annotated[bool, Option("--new", help="Write a method's file of this name, to begin from.")] = False,
) -> int:
    """Check whether a method or evaluator meets every requirement on plugins, on the smallest miniature."""
    from harness.commands.plugins import check_plugin, write_method

    return write_method(plugin) if new else check_plugin(plugin, settings or ())


@verb()
def plugins(
    schema: Annotated[bool, Option("--schema", help="Print the JSON schema of a sweep file, for editors.")] = False,
) -> None:
    """Print every method and evaluator with its settings, and every metric."""
    from harness.commands.plugins import catalogue, sweep_schema

    tell(json.dumps(sweep_schema(), indent=1) if schema else catalogue())


@verb()
def dashboard(
    results: Results = RESULTS,
    port: Annotated[int, Option(min=1, max=65535, help="Serve http://HOST:PORT.")] = 5000,
    host: Annotated[str, Option(help="An address of this machine; without a password.")] = "127.0.0.1",
) -> None:
    """Browse the runs of all sweeps in MLflow."""
    from harness.records.mlflow import serve_dashboard

    serve_dashboard(results, port, host)


if __name__ == "__main__":
    main()
