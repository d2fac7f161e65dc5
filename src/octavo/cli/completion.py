"""octavo completion: scripts for shells that complete verbs, actions, models, flags, their values, corpora and runs.

A script holds all words but the runs, which the shell looks for itself, so completing starts no Python.
"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from octavo.cli import VERBS
from octavo.cli.help import index
from octavo.datasets.sources import SOURCES

Shell = Literal["bash", "zsh", "fish"]
ALWAYS = ("--help", "--quiet", "--verbose", "--max-bytes")
BASH = """# octavo's words for bash: put  eval "$(octavo completion bash)"  into ~/.bashrc
_octavo_words() {{
    case "$1" in
{cases}
    esac
}}
_octavo_values() {{
    case "$1" in
{values}
    esac
}}
_octavo_runs() {{
    local config
    for config in runs/*/config.json runs/*/*/config.json "$1"*/config.json "$1"*/*/config.json; do
        [ -f "$config" ] && echo "${{config%/config.json}}"
    done
}}
_octavo() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="" words=""
    local i next
    for ((i = 1; i < COMP_CWORD; i++)); do
        next="${{command:+$command }}${{COMP_WORDS[i]}}"
        [ -n "$(_octavo_words "$next")" ] && command="$next" || break
    done
    COMPREPLY=()
    words="$(_octavo_values "$before")"
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
        return
    fi
    words="$(_octavo_words "${{command:-octavo}}")"
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
        *)
            words="$(for one in $words; do case "$one" in -*) ;; *) echo "$one" ;; esac; done)"
            [ -n "$command" ] && words="$words {corpora} $(_octavo_runs "$word")"
            COMPREPLY=($(compgen -W "$words" -- "$word"))
            [ -n "$command" ] && COMPREPLY+=($(compgen -f -- "$word"))
            ;;
    esac
}}
complete -o filenames -F _octavo octavo
"""
ZSH = """#compdef octavo
# octavo's words for zsh: put  eval "$(octavo completion zsh)"  into ~/.zshrc, after compinit
autoload -Uz bashcompinit && bashcompinit
{bash}"""
FISH_HEAD = """# octavo's words for fish: octavo completion fish > ~/.config/fish/completions/octavo.fish
function __octavo_command
    set -l words (commandline -opc)
    set -e words[1]
    set -l plain
    for word in $words
        string match -q -- '-*' $word; and break
        set -a plain $word
    end
    string join ' ' -- $plain
end
function __octavo_at
    set -l command (__octavo_command)
    test "$command" = "$argv"; or string match -q -- "$argv *" "$command"
end
function __octavo_runs
    for config in runs/*/config.json runs/*/*/config.json
        string replace '/config.json' '' -- $config
    end
end
"""


def completion(shell: Annotated[Positional[Shell], arg(metavar="bash|zsh|fish")]) -> None:
    """Print a script that completes octavo's words: verbs, models, flags and their values, corpora and runs.

    In bash: eval "$(octavo completion bash)"; in zsh the same with zsh; for fish write it to
    ~/.config/fish/completions/octavo.fish. Put the line into the shell's start-up file to keep it.

    Example: octavo completion bash

    Args:
        shell: The shell that the script is for.
    """
    sys.stdout.write({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[shell]())


def words_of(command: str) -> list[str]:
    """What can follow a command: actions and models, then flags; octavo itself has verbs."""
    if not command:
        return [*VERBS, "help", "--version", *ALWAYS]
    below = {key.removeprefix(f"{command} ").split()[0] for key in index() if key.startswith(f"{command} ")}
    flags = [one["flag"] for group in index()[command].get("groups", {}).values() for one in group]
    return [*sorted(below), *sorted(set(flags)), *ALWAYS]


def values_of_flags() -> dict[str, list[str]]:
    """The values that flags may have, where they are few; of a flag of several commands, all of them."""
    found: dict[str, set[str]] = {}
    for described in index().values():
        for group in described.get("groups", {}).values():
            for one in group:
                found.setdefault(one["flag"], set()).update(one.get("choices", ()))
    return {flag: sorted(values) for flag, values in found.items() if values}


def corpora() -> list[str]:
    """The named sources."""
    return sorted(SOURCES)


def bash_script() -> str:
    """The script for bash."""
    commands = {"octavo": words_of("")} | {command: words_of(command) for command in index()}
    return BASH.format(
        cases="\n".join(f'        "{name}") echo "{" ".join(words)}" ;;' for name, words in commands.items()),
        values="\n".join(f'        {flag}) echo "{" ".join(values)}" ;;' for flag, values in values_of_flags().items()),
        corpora=" ".join(corpora()),
    )


def zsh_script() -> str:
    """The script for zsh, which can run bash's."""
    return ZSH.format(bash=bash_script())


def fish_script() -> str:
    """The script for fish."""
    lines = [f"complete -c octavo -n 'test -z (__octavo_command)' -f -a '{verb}' -d '{_quoted(about)}'"
             for verb, (_, about) in VERBS.items()]  # fmt: skip
    for command in index():
        at = f"complete -c octavo -n '__octavo_at {command}'"
        below = [word for word in words_of(command) if not word.startswith("-")]
        lines += [f"{at} -a '{' '.join(below)}'"] if below else []
        for group in index()[command].get("groups", {}).values():
            for one in group:
                takes = f" -x -a '{' '.join(one['choices'])}'" if one.get("choices") else " -r" if one["value"] else ""
                lines.append(f"{at} -l {one['flag'].removeprefix('--')}{takes} -d '{_quoted(one['help'])}'")
    lines += [f"complete -c octavo -l {flag.removeprefix('--')}" for flag in ALWAYS]
    lines.append(f"complete -c octavo -n 'test -n (__octavo_command)' -a '{' '.join(corpora())} (__octavo_runs)'")
    return FISH_HEAD + "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
