"""A repository that sets all by which git could be made to run a program, to use a file elsewhere, or to reach another
host; and whether any of it had an effect.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from support.repositories import Depot

from agentq.coordinator.security.git_directory import format_settings

PROGRAMS = (
    *("alias.add", "alias.diff", "alias.evil", "browser.evil.cmd", "browser.evil.path", "core.alternateRefsCommand"),
    *("core.askPass", "core.editor", "core.fsmonitor", "core.gitProxy", "core.pager", "core.sshCommand"),
    *("credential.helper", "credential.https://127.0.0.1.helper", "diff.evil.command", "diff.evil.textconv"),
    *("diff.external", "diff.guitool", "diff.tool", "difftool.evil.cmd", "difftool.evil.path", "filter.evil.clean"),
    *("filter.evil.process", "filter.evil.smudge", "filter.e=v.clean", "filter.e.v.smudge", "filter.lfs.clean"),
    *("filter.lfs.process", "filter.lfs.smudge", "gpg.openpgp.program", "gpg.program", "gpg.ssh.defaultKeyCommand"),
    *("gpg.ssh.program", "gpg.x509.program", "gui.editor", "guitool.evil.cmd", "help.browser", "hook.evil.command"),
    *("imap.tunnel", "instaweb.browser", "instaweb.httpd", "interactive.diffFilter", "lfs.customtransfer.evil.path"),
    *("lfs.extension.evil.clean", "lfs.extension.evil.smudge", "lfs.standalonetransferagent", "man.evil.cmd"),
    *("man.evil.path", "man.viewer", "merge.evil.driver", "merge.guitool", "merge.tool", "mergetool.evil.cmd"),
    *("mergetool.evil.path", "pager.diff", "pager.log", "pager.status", "receive.procReceiveRefs"),
    *("remote.origin.receivepack", "remote.origin.uploadpack", "sendemail.ccCmd", "sendemail.headerCmd"),
    *("sendemail.smtpServer", "sendemail.toCmd", "sequence.editor", "tar.evil.command", "trailer.evil.cmd"),
    *("trailer.evil.command", "uploadpack.packObjectsHook", "web.browser"),
)
"""All settings that name a program, of `git help --config` and of what belongs to git."""
STRATEGIES = ("branch.main.mergeOptions", "pull.octopus", "pull.twohead")
"""Of these git makes the name of a program."""
PLACES = (
    *("blame.ignoreRevsFile", "commit.template", "core.attributesFile", "core.excludesFile", "core.hooksPath"),
    *("core.worktree", "diff.orderFile", "fetch.fsck.skipList", "format.outputDirectory", "format.signatureFile"),
    *("fsck.skipList", "fsmonitor.socketDir", "gitcvs.logFile", "gpg.ssh.allowedSignersFile", "gpg.ssh.revocationFile"),
    *("help.htmlPath", "http.cookieFile", "http.proxySSLCAInfo", "http.proxySSLCert", "http.proxySSLKey"),
    *("http.sslCAInfo", "http.sslCAPath", "http.sslCert", "http.sslKey", "include.path", "includeIf.gitdir:/.path"),
    *("init.templateDir", "lfs.storage", "mailmap.file", "receive.fsck.skipList", "sendemail.aliasesFile"),
    *("sendemail.smtpsslcertpath", "trace2.eventTarget", "trace2.normalTarget", "trace2.perfTarget"),
)
"""All settings that name a file or a folder."""
NETWORK = {
    "url.ext::{trap} .insteadOf": "https://127.0.0.1/",
    "url.ext::{trap} .pushInsteadOf": "file://",
    "bundle.evil.uri": "http://127.0.0.1:9/",
    "extensions.partialClone": "origin",
    "http.curloptResolve": "127.0.0.1:9:127.0.0.1",
    "http.proxy": "http://127.0.0.1:9",
    "http.https://127.0.0.1.proxy": "http://127.0.0.1:9",
    "http.sslVerify": "false",
    "protocol.allow": "always",
    "protocol.ext.allow": "always",
    "remote.evil.url": "ext::{trap}",
    "remote.origin.promisor": "true",
    "remote.origin.proxy": "http://127.0.0.1:9",
    "remote.origin.vcs": "evil",
    "fetch.bundleURI": "http://127.0.0.1:9/",
}
SWITCHES = {
    **dict.fromkeys(("commit.gpgSign", "tag.gpgSign", "tag.forceSignAnnotated", "push.gpgSign"), "true"),
    **dict.fromkeys(("log.showSignature", "merge.verifySignatures", "merge.autoStash", "rebase.autoStash"), "true"),
    **dict.fromkeys(("submodule.recurse", "maintenance.auto", "fetch.writeCommitGraph", "rerere.enabled"), "true"),
    **dict.fromkeys(("filter.evil.required", "core.untrackedCache", "core.splitIndex", "feature.manyFiles"), "true"),
    **dict.fromkeys(("receive.autogc", "safe.directory", "core.preferSymlinkRefs", "push.followTags"), "true"),
    "fetch.recurseSubmodules": "on-demand",
    "push.recurseSubmodules": "on-demand",
    "submodule.lib.update": "!{trap}",
    "gc.auto": "1",
    "merge.default": "evil",
    "ssh.variant": "simple",
    "status.submoduleSummary": "true",
    "diff.submodule": "log",
    "trailer.evil.key": "Evil",
    "lfs.customtransfer.evil.args": "x",
    "core.fsmonitorHookVersion": "1",
    "diff.evil.cachetextconv": "true",
    "hook.evil.event": "pre-commit",
    "push.negotiate": "true",
    "pack.threads": "1",
    "credential.useHttpPath": "true",
    "core.notesRef": "refs/evil",
}
"""What lets some of these have an occasion."""
HOOKS = (
    *("applypatch-msg", "commit-msg", "fsmonitor-watchman", "p4-pre-submit", "post-applypatch", "post-checkout"),
    *("post-commit", "post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update"),
    *("pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "pre-receive"),
    *(
        "prepare-commit-msg",
        "proc-receive",
        "push-to-checkout",
        "reference-transaction",
        "sendemail-validate",
        "update",
    ),
)
ATTRIBUTES = "* filter=evil merge=evil diff=evil\n*.md filter=e=v\n*.dat filter=e.v\n"


def list_hostile_settings(trap: Path) -> dict[str, str]:
    """Each setting that could do harm, made to run the trap or to write beside it."""
    elsewhere = trap.with_name("elsewhere")
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "config").write_text(f'[filter "evil"]\n\tclean = {trap}\n[core]\n\tfsmonitor = {trap}\n')
    settings = dict.fromkeys(PROGRAMS, str(trap)) | dict.fromkeys(STRATEGIES, "evil")
    settings |= {key: str(elsewhere / "config" if key.startswith("include") else elsewhere) for key in PLACES}
    return {key.format(trap=trap): value.format(trap=trap) for key, value in (settings | NETWORK | SWITCHES).items()}


def configured(depot: Depot, trap: Path, *, worktree: str = "") -> None:
    """All that git would run or reach: in the settings of a repository, and in those of one of its worktrees."""
    text = format_settings(list_hostile_settings(trap).items())
    own = [depot.path / ".git/worktrees" / worktree / "config.worktree"] if worktree else []
    for file in (depot.path / ".git/config", depot.path / ".git/config.worktree", *own):
        with file.open("a") as opened:
            opened.write(text)
    with (depot.path / ".git/config").open("a") as opened:
        opened.write("[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tworktreeConfig = true\n")
    for folder in (depot.path / ".git", trap.with_name("elsewhere")):
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info/attributes").write_text(ATTRIBUTES)
        (folder / "hooks").mkdir(exist_ok=True)
        for hook in HOOKS:
            shutil.copy(trap, folder / "hooks" / hook)
    for hook in HOOKS:
        shutil.copy(trap, trap.with_name("elsewhere") / hook)
    for name, legacy in (("remotes", f"URL: ext::{trap}\n"), ("branches", f"ext::{trap}")):
        (depot.path / ".git" / name).mkdir(exist_ok=True)
        (depot.path / ".git" / name / "legacy").write_text(legacy)


def list_hostile_keys() -> set[str]:
    return {*PROGRAMS, *PLACES, *NETWORK, *SWITCHES, *STRATEGIES}
