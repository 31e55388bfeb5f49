"""`fairlead completion` prints a script by which a shell completes commands, options and their values."""

import click
from click.shell_completion import get_completion_class

_HOW = {
    "bash": 'Add to ~/.bashrc:  eval "$(fairlead completion bash)"',
    "zsh": 'Add to ~/.zshrc:  eval "$(fairlead completion zsh)"',
    "fish": "Write once:  fairlead completion fish > ~/.config/fish/completions/fairlead.fish",
}


@click.command(epilog="  ".join(f"{how}." for how in _HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
def completion(shell: str) -> None:
    """Print the completion script of a shell: bash (4.4 or newer), zsh or fish.

    With it the Tab key completes commands, options and the values of options.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "fairlead", "_FAIRLEAD_COMPLETE").source())
