"""Text from the image of a page, behind an interface."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from PIL.Image import Image

INSTALL = "pip install 'seaway[ocr]'"


class Ocr(Protocol):
    """Reads a page's image. `name` holds the version of the models' package."""

    @property
    def name(self) -> str: ...

    def __call__(self, image: "Image") -> str: ...


class RapidOcr:
    """PP-OCR on onnxruntime, with the models that the package carries: printed Chinese, English and other Latin scripts.

    One thread, so that sums are taken in one order and the text does not depend on the machine's load.
    """

    def __init__(self) -> None:
        from rapidocr import RapidOCR  # seconds to load, and an extra

        self.name = ocr_name("rapidocr")
        threads = {"EngineConfig.onnxruntime.intra_op_num_threads": 1, "EngineConfig.onnxruntime.inter_op_num_threads": 1}
        self._engine: Any = RapidOCR(params={"Global.log_level": "critical", **threads})

    def __call__(self, image: "Image") -> str:
        found = self._engine(image.convert("RGB"))
        return "\n".join(found.txts or ())


def ocr_engine(name: str) -> Ocr | None:
    """The engine that a config names; None for "none".

    Raises:
        ImportError: its packages are not installed.
    """
    if name == "none":
        return None
    return {"rapidocr": RapidOcr}[name]()


def ocr_name(name: str) -> str:
    """`{name}/{version}`, without loading the engine.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return f"{name}/{version(name)}"
    except PackageNotFoundError as error:
        raise ImportError(f"pdf.ocr is {name!r}, which is not installed; {INSTALL}") from error
