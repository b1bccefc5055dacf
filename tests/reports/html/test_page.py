"""The page as text: self-contained, the same each time, and inert whatever names say."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest

from perfmodel import Deployment, Workload, load_hardware, load_model
from perfmodel.specs.hardware import hardware_dir
from reports.html.grid import Case
from reports.html.page import embedded, render
from reports.html.record import make_report
from tests.reports.html.made import llama, llama_page, too_large

HOSTILE = (
    """</script><script>window.pwned="yaml"</script><img src=x onerror='window.pwned=1'>"&amp;"""
)
NAME = """a"b'c<script>window.pwned=2<!--&lt;.json"""


@dataclass
class Read(HTMLParser):
    """Elements with their attributes, and the text of scripts."""

    elements: list = field(default_factory=list)
    scripts: list = field(default_factory=list)

    def __post_init__(self):
        super().__init__()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script" and self.lasttag == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self.lasttag = ""


def read(text):
    parser = Read()
    parser.feed(text)
    return parser


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A report whose model and hardware have names and texts that would do harm."""
    folder = tmp_path_factory.mktemp("hostile")
    model = folder / NAME
    model.write_text(json.dumps(CONFIG), encoding="utf-8")
    profile = (hardware_dir() / "t4.yaml").read_text(encoding="utf-8")
    lines = [line for line in profile.splitlines() if not line.startswith("title:")]
    hardware = folder / "t4.yaml"
    title = json.dumps(HOSTILE + "\u2028\u202e")
    hardware.write_text("\n".join([*lines, f"title: {title}"]), encoding="utf-8")
    case = Case(load_model(model), load_hardware(hardware), Workload(prompt=200), Deployment())
    return make_report(case, command=f"perfmodel report '{NAME}'")


CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_nothing_is_fetched_from_anywhere():
    page = read(llama_page())
    assert not [tag for tag, _ in page.elements if tag in {"iframe", "object", "embed", "img"}]
    sources = [a.get(n) for _, a in page.elements for n in ("src", "href", "srcset") if n in a]
    assert sources == ["data:,"]
    assert "url(" not in llama_page()
    assert "@import" not in llama_page()


def test_the_policy_allows_our_own_script_alone():
    page = read(llama_page())
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv"))
    own = hashlib.sha256(page.scripts[1].encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(own).decode()}'" in policy
    assert policy.startswith("default-src 'none'")


def test_the_same_report_makes_the_same_page():
    assert render(llama()) == llama_page()


def test_the_data_holds_every_setting():
    page = read(llama_page())
    data = json.loads(page.scripts[0])
    size = len(data["batches"]) * len(data["prompts"])
    assert {len(column) for column in data["columns"].values()} == {size}
    named = {a[n] for _, a in page.elements for n in a if n in MOVED}
    assert named <= data["columns"].keys()


MOVED = ("data-text", "data-width", "data-path", "data-place")


def test_hostile_names_stay_text(hostile):
    page = read(render(hostile))
    assert len(page.scripts) == 2
    tags = {tag for tag, _ in page.elements}
    assert "img" not in tags
    json.loads(page.scripts[0])
    assert not [n for _, a in page.elements for n in a if n.startswith("on")]


def test_data_cannot_leave_its_element():
    text = embedded({"a": "</script><!--", "b": "\u2028\u2029&'"})
    assert not set("<>&'\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": "</script><!--", "b": "\u2028\u2029&'"}


def test_a_page_of_what_does_not_fit_says_so_and_slides_nothing():
    text = render(too_large())
    page = read(text)
    assert "It doesn’t fit" in text
    assert not [tag for tag, _ in page.elements if tag == "input"]
    assert "table-prefill" not in {a.get("id") for _, a in page.elements}


def test_identifiers_are_unique():
    ids = [a["id"] for _, a in read(llama_page()).elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_every_reference_to_an_identifier_has_one():
    page = read(llama_page())
    ids = {a["id"] for _, a in page.elements if "id" in a}
    for name in ("for", "aria-labelledby", "aria-describedby"):
        assert {a[name] for _, a in page.elements if name in a} <= ids
