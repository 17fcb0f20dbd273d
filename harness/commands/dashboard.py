"""Serves MLflow's page of all sweeps on 127.0.0.1."""

from __future__ import annotations

import argparse

from harness.commands.command import Command, add_results_argument


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results_argument(parser)
    parser.add_argument("--port", type=int, default=5000, help="where the page is served: http://127.0.0.1:PORT")


def _run(arguments: argparse.Namespace) -> int:
    from harness.records.tracking.database import serve_dashboard

    serve_dashboard(arguments.results, arguments.port)


main = Command("dashboard", __doc__, _add_arguments, _run)
