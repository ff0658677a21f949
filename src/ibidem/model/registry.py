"""The models that commands and servers find by name or by languages: those of the package, and those a user added.

The list of added models is a JSON file in the folder of the user's settings. Nothing is copied or downloaded into it:
an entry has the folder or hub name of a model, and its languages.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from ibidem.errors import ModelError, UsageError
from ibidem.text import primary_language, same_language

# The first shipped model, which commands use if neither a model nor a language is given.
SHIPPED = "ibidem-base-de-en"
_SHIPPED_PREFIX = "ibidem-base-"
_SHIPPED_FOLDER = Path(str(resources.files("ibidem.model") / "shipped"))
_FILE_VARIABLE = "IBIDEM_MODELS"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class KnownModel:
    """A model that can be named without its folder.

    Attributes:
        name: The name for `--model`.
        location: An absolute folder, a name on the hub, or the name of a shipped model: what `load_model` loads.
        source_language: The source language.
        target_language: The target language.
        source_prefix: Text before every source, such as T5's task.
        shipped: Whether the model is part of the package.
    """

    name: str
    location: str
    source_language: str
    target_language: str
    source_prefix: str = ""
    shipped: bool = False

    def translates(self, source: str | None, target: str | None) -> bool:
        """Return whether the model has the given languages.

        Args:
            source: A source language; None for any.
            target: A target language; None for any.

        Examples:
            >>> KnownModel("mine", "/models/mine", "de", "en").translates("de-AT", None)
            True
        """
        return (source is None or same_language(self.source_language, source)) and (
            target is None or same_language(self.target_language, target)
        )


def registry_file() -> Path:
    """Return the file of the added models: `$IBIDEM_MODELS`, else `models.json` in the folder of user settings."""
    given = os.environ.get(_FILE_VARIABLE)
    if given:
        return Path(given)
    settings = os.environ.get("XDG_CONFIG_HOME")
    return (Path(settings) if settings else Path.home() / ".config") / "ibidem" / "models.json"


def shipped_models() -> list[KnownModel]:
    """Return the models of the package, the default first.

    A folder below `ibidem/model/shipped` with a configuration and the languages in its `tokenizer_config.json` is
    enough: a model that is packed there is found without any other change.
    """
    found = []
    for config in sorted(_SHIPPED_FOLDER.glob("*/config.json")):
        settings = json.loads((config.parent / "tokenizer_config.json").read_text(encoding="utf-8"))
        name = config.parent.name
        found.append(KnownModel(name, name, settings["source_lang"], settings["target_lang"], shipped=True))
    return sorted(found, key=lambda model: model.name != SHIPPED)


def shipped_folder(name: str) -> Path | None:
    """Return the folder of a shipped model; None if the name is not that of a shipped model.

    Args:
        name: The name of a model.

    Raises:
        ModelError: The name is that of a shipped model which this version of the package does not contain.
    """
    if not name.startswith(_SHIPPED_PREFIX) or not _NAME.fullmatch(name):
        return None
    folder = _SHIPPED_FOLDER / name
    if (folder / "config.json").is_file():
        return folder
    known = ", ".join(model.name for model in shipped_models())
    raise ModelError(
        f"{name} is not part of this installation, which has {known}: install a version of ibidem that contains it, or "
        "choose another model with --model."
    )


def added_models() -> list[KnownModel]:
    """Return the models that the user added, in the order of adding.

    Raises:
        UsageError: The file of the added models is damaged or cannot be read.
    """
    file = registry_file()
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return [
            KnownModel(
                str(entry["name"]),
                str(entry["location"]),
                str(entry["source_language"]),
                str(entry["target_language"]),
                str(entry.get("source_prefix", "")),
            )
            for entry in content["models"]
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(
            f"The list of added models {file} cannot be read ({error.strerror}): check its permissions, or name "
            f"another file in the environment variable {_FILE_VARIABLE}."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{file} is not a list of models: delete it, and add the models again with `ibidem model add`."
        ) from None


def known_models() -> list[KnownModel]:
    """Return the shipped models and those that the user added, in the order in which languages choose one."""
    return [*shipped_models(), *added_models()]


def add_model(model: KnownModel) -> None:
    """Add a model to the list of the user.

    Args:
        model: The model; one of the same name is replaced.

    Raises:
        UsageError: The name is invalid, or that of a shipped model.
    """
    if not _NAME.fullmatch(model.name):
        raise UsageError(
            f"'{model.name[:80]}' cannot be the name of a model: use letters, digits, '.', '_' and '-', with --name."
        )
    if model.name.startswith(_SHIPPED_PREFIX):
        raise UsageError(f"Names that start with {_SHIPPED_PREFIX} are those of shipped models: give another --name.")
    _write([*(one for one in added_models() if one.name != model.name), model])


def remove_model(name: str) -> KnownModel:
    """Remove a model from the list of the user; its files stay.

    Args:
        name: The name of the model.

    Returns:
        The removed entry.

    Raises:
        UsageError: There is no added model of this name.
    """
    models = added_models()
    found = next((model for model in models if model.name == name), None)
    if found is None:
        raise UsageError(f"There is no added model '{name}': `ibidem model list` shows all names.")
    _write([model for model in models if model.name != name])
    return found


def find_model(name: str) -> KnownModel | None:
    """Return the known model of a name; None if there is none.

    Args:
        name: A name, as `--model` takes it.
    """
    return next((model for model in known_models() if model.name == name), None)


def choose_model(source: str | None, target: str | None) -> KnownModel | None:
    """Choose the first known model of given languages.

    Shipped models come first, so that adding a model changes no command that worked before.

    Args:
        source: The source language; None for any.
        target: The target language; None for any.

    Returns:
        The model; None if no known model has the languages.
    """
    return next((model for model in known_models() if model.translates(source, target)), None)


def describe_pairs(models: list[KnownModel]) -> str:
    """Write the pairs of languages of models, each once.

    Args:
        models: The models.

    Examples:
        >>> describe_pairs([KnownModel("a", "a", "de", "en"), KnownModel("b", "b", "en", "deu_Latn")])
        'de to en, en to de'
    """
    pairs = [f"{primary_language(one.source_language)} to {primary_language(one.target_language)}" for one in models]
    return ", ".join(dict.fromkeys(pairs))


def _write(models: list[KnownModel]) -> None:
    """Replace the list atomically."""
    entries = [{key: value for key, value in asdict(model).items() if key != "shipped"} for model in models]
    file = registry_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        partial.write_text(json.dumps({"models": entries}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
