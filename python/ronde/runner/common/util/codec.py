"""Python objects as base64 text, for environment variables and command lines."""

from __future__ import annotations

import base64
import pickle
from typing import Any, Union

try:  # also pickles functions and classes of the main program
    import cloudpickle as pickler
except ImportError:
    pickler = pickle


def dumps_base64(obj: Any, to_ascii: bool = True) -> Union[str, bytes]:
    """Returns the pickled object as base64: text, or bytes unless ``to_ascii``."""
    encoded = base64.b64encode(pickler.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: Union[str, bytes]) -> Any:
    """Returns the object that :func:`dumps_base64` encoded. It is unpickled: only for text from a
    trusted source.
    """
    return pickle.loads(base64.b64decode(encoded))
