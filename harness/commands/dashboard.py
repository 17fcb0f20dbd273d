"""Serve MLflow's page of all sweeps on 127.0.0.1."""

from __future__ import annotations

import argparse

from harness.commands.command import Command, add_results_argument


class DashboardCommand(Command):
    """`lethe dashboard`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the results folder and the port."""
        add_results_argument(parser)
        parser.add_argument("--port", type=int, default=5000, help="serve http://127.0.0.1:PORT (%(default)s)")

    def run(self, arguments: argparse.Namespace) -> int:
        """Serve until the user ends it."""
        from harness.records.mlflow import serve_dashboard

        serve_dashboard(arguments.results, arguments.port)


main = DashboardCommand()
