"""`agentq agents`: lists, shows and checks the coding agents of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.connect import print_note
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.render import bold, on_terminal, paint, print_json, print_sentence, print_table
from agentq.coordinator.errors import Invalid

if TYPE_CHECKING:
    from agentq.worker.agents.profiles.agent_check import AgentFinding

Opt = typer.Option
NOT_INSTALLED = "not installed"

agents = typer.Typer(**TYPER_SETTINGS, invoke_without_command=True)


@agents.callback(epilog="Example: agentq agents")
def list_agents(ctx: typer.Context, json: Json = False) -> None:
    """List and check the coding agents on this machine.

    Lists each known agent with the path of its program, its accounts and the source of its profile: agentq itself,
    [agents.NAME] in a settings file, or agents/NAME.toml beside it.
    """
    if ctx.invoked_subcommand is not None:
        if json:
            raise Invalid(f"--json stands after {ctx.invoked_subcommand}.")
        return
    from agentq.worker.agents.accounts.billing import order_accounts
    from agentq.worker.agents.profiles.installed import InstalledAgents
    from agentq.worker.agents.profiles.registry import ProfileRegistry

    profiles = ProfileRegistry.load()
    installed = InstalledAgents.detect(profiles)
    rows = []
    for name in sorted(profiles.names(), key=lambda name: (name not in installed.programs, name)):
        profile = profiles.get(name)
        program, source = installed.programs.get(name), profiles.sources[name]
        known = {"agent": name, "title": profile.title, "program": program, "accounts": order_accounts(profile)}
        if json:
            print_json(known | {"source": source})
        else:
            rows.append([name, profile.title, program or NOT_INSTALLED, " ".join(order_accounts(profile)), source])
    if not json:
        print_table(["agent", "title", "program", "accounts", "from"], rows)


@agents.command("show")
def show(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent, by name.")],
    json: Json = False,
) -> None:
    """Show the whole profile of an agent, in the format of agents/NAME.toml.

    \b
    Example: agentq agents show claude
    """
    from agentq.cli.show.toml import toml_lines
    from agentq.worker.agents.profiles.registry import ProfileRegistry

    profiles = ProfileRegistry.load()
    profile = profiles.get(agent)
    known = profile.model_dump(mode="json", exclude_none=True)
    if json:
        print_json({"agent": agent, "source": profiles.sources[agent], "profile": known})
        return
    print_sentence(f"# {agent}, {profiles.sources[agent]}")
    for line in toml_lines(known):
        print(line)


@agents.command("check")
def check(
    agent: Annotated[
        list[str] | None, typer.Argument(metavar="AGENT", help="The agents, by name; all installed ones if none.")
    ] = None,
    run: Annotated[bool, Opt("--run", help="Run a one-word prompt on each account; may cost a little.")] = False,
    json: Json = False,
) -> None:
    """Check agents: the program, its version and its login. The exit code is 1 if one fails.

    \b
    Example: agentq agents check standin --run
    """
    from agentq.worker.agents.profiles.agent_check import AgentCheck
    from agentq.worker.agents.profiles.installed import InstalledAgents
    from agentq.worker.agents.profiles.registry import ProfileRegistry

    profiles = ProfileRegistry.load()
    names = agent or sorted(InstalledAgents.detect(profiles).programs)
    checkups = [AgentCheck(name, profiles.get(name)) for name in dict.fromkeys(names)]
    failed = False
    for checkup in checkups:
        if not json and on_terminal():
            print(bold(checkup.agent))
        for finding in checkup.findings(run=run):
            failed |= finding.verdict == "fail"
            if json:
                print_json({"agent": checkup.agent, **finding._asdict()})
            else:
                _print_finding(checkup.agent, finding)
    if not checkups:
        print_note("no agent is installed here; `agentq agents` lists those that are known.")
    raise typer.Exit(1 if failed else 0)


def _print_finding(agent: str, finding: AgentFinding) -> None:
    where = "  " if on_terminal() else f"{agent}: "
    do = f"; {finding.do}" if finding.do else ""
    print(f"{where}{paint(finding.verdict)}{'':{5 - len(finding.verdict)}}", end="")
    print_sentence(f"{finding.check:8}  {finding.found}{do}")
