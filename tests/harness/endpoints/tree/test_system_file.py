"""The TOML of a system: what is wrong in it is one line with its place; what begins it can be completed."""

import json

import pytest
from msgspec.structs import replace

from harness.endpoints.tree.run_facts import read_runs, run_folders
from harness.endpoints.tree.starter import starter
from harness.endpoints.tree.system_file import EXAMPLE, read_system
from harness.errors import ConfigError
from harness.record.settled import Router
from tests.endpoints_kit import SYSTEM, write_runs, write_system


def changed(old, new):
    assert old in SYSTEM
    return SYSTEM.replace(old, new, 1)


def with_point(line):
    return f"{SYSTEM}\n[points.r1]\n{line}\n"


SCALE_OUT = """
[scale_out]
cabling = "passive"
nics_per_node = 8
nic_gbps = 400
[[scale_out.switches]]
model = "SN5610"
count = 1
bandwidth_tbps = 51.2
power = {{ watts = 900, source = "{}" }}
"""

WRONG = {
    "no TOML": ("submitter = ", "start from a copy"),
    "a typo at the top": (changed("submitter =", "submiter ="), "did you mean 'submitter'"),
    "a typo in a table": (changed("system_size", "sytem_size"), "[system]: unknown key 'sytem_size'"),
    "a typo in a list of tables": (changed("\ndriver", "\ndrivers"), "did you mean 'driver'"),
    "a typo two levels down": (
        changed("accelerators_per_node", "accelerator_per_node"),
        "'accelerator_per_node'",
    ),
    "a typo in a figure": (
        changed("watts = 700", "watt = 700"),
        "[node_types.power.accelerator]: unknown key 'watt'",
    ),
    "a point's typo": (
        f"{SYSTEM}\n[points.r1]\ntensor_paralel = 8\n",
        "[points.r1]: unknown key 'tensor_paralel'",
    ),
    "text for a number": (changed("watts = 700", 'watts = "a lot"'), "watts"),
    "another division": (changed('"Standardized"', '"closed"'), "division"),
    "no submitter": (changed('submitter = "MyOrg"', ""), "submitter"),
    "a path for a name": (changed('"MyOrg"', '"../MyOrg"'), "submitter is '../MyOrg'"),
    "a long short name": (changed('= "8xH200" ', f'= "{21 * "x"}"'), "21 characters"),
    "more nodes than there are": (
        with_point("nodes_used = { 1 = 2 }"),
        "[points.r1]: nodes_used has 2",
    ),
    "nodes of no type": (with_point("nodes_used = { 7 = 1 }"), "node type 7"),
    "a slash in the system's name": (
        changed('"8x NVIDIA H200"', '"8x NVIDIA H200 w/ NVLink"'),
        "system_name '8x NVIDIA H200 w/ NVLink' has a slash",
    ),
    "less than no power": (changed("watts = 700", "watts = -700"), ">= 0.0 - at `$.node_types[0].power"),
    "a word of another file": (
        changed('availability_status = "Available"', 'availability_status = "available"'),
        "at `$.system.system_availability_status`; did you mean 'Available'?",
    ),
    "no cooling that is known": (
        changed('cooling = "air"', 'cooling = "pool"'),
        "'pool' - at `$.node_types[0].cooling`, expected one of air, liquid",
    ),
    "an endless power": (
        changed("watts = 700", "watts = inf"),
        "at `$.node_types[0].power.accelerator.watts`",
    ),
    "no node": (changed("number_of_nodes = 1", "number_of_nodes = 0"), "number_of_nodes"),
    "no replica": (changed("data_parallel = 8", "data_parallel = 0"), "data_parallel"),
    "a source without its protocol": (
        changed("https://example.com/nvswitch", "example.com/nvswitch"),
        "[[node_types]] 1: power.scale_up.switch: source is 'example.com/nvswitch'",
    ),
    "a source of bits without its protocol": (
        changed(
            'switches = 4, switch = { watts = 100, source = "https://example.com/nvswitch" }',
            'bandwidth_tbps = 14.4, pj_per_bit = 1.3, source = "example.com/nvlink"',
        ),
        "[[node_types]] 1: power.scale_up: source is 'example.com/nvlink'",
    ),
    "a source of a switch without its protocol, and no adapter": (
        SYSTEM + SCALE_OUT.format("example.com/sn5610"),
        "[scale_out] switch SN5610: source is 'example.com/sn5610'",
    ),
    "a day of no calendar": (
        changed('# target_availability_date = "2027-03-01"', 'target_availability_date = "2027-02-30"'),
        "target_availability_date is '2027-02-30'",
    ),
    "a day that is not ISO 8601": (
        changed('# target_availability_date = "2027-03-01"', 'target_availability_date = "20270301"'),
        "target_availability_date is '20270301'",
    ),
    "a document that is not there": (
        f'{SYSTEM}\n[docs]\nreadme = "absent.md"\n',
        "absent.md: No such file or directory; correct its path in [docs]",
    ),
    "a document that is a folder": (
        f'{SYSTEM}\n[docs]\nserver_configs = ["."]\n',
        "Is a directory; correct its path in [docs]",
    ),
}


@pytest.mark.parametrize(("text", "word"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_toml_is_one_line(text, word, tmp_path):
    with pytest.raises(ConfigError) as raised:
        read_system(write_system(tmp_path, text))
    assert word in str(raised.value) and "\n" not in str(raised.value)
    assert str(raised.value).startswith("--system ")


SOURCES = (
    "https://e.com/x",
    "http://e.com",
    "D.1",
    "D.4",
    "D.5",
    "D.",
    "d.1",
    "e.com",
    "ftp://e.com",
    " https://e.com",
    "",
)


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_is_taken_where_the_official_checker_takes_it(source, tmp_path):
    power = pytest.importorskip("submission_checker.models.file.system_power")
    path = write_system(tmp_path, changed("https://example.com/nvswitch", source))
    kind = "mlc_default" if source.startswith("D.") else "vendor_spec"
    try:
        power.SourcedValue(value_w=100, source_type=kind, source=source)
    except ValueError:
        with pytest.raises(ConfigError, match="source is"):
            read_system(path)
    else:
        read_system(path)


WARM_UPS = (
    *({}, {"duration_s": 0}, {"duration_s": 86400}, {"duration_s": 86401}, {"duration_s": -1}),
    *({"requests_completed": 511}, {"requests_completed": 513}, {"requests_completed": -1}),
    *({"concurrency": 1}, {"concurrency": 0}, {"concurrency": -1}, {"data_source": ""}),
    {"duration_s": 0, "concurrency": 0},
    {"requests_issued": 0, "requests_completed": 0, "concurrency": 0},
    *(
        {"duration_s": 0, "requests_issued": 0, "requests_completed": 0, "concurrency": least}
        for least in (0, -1)
    ),
)


@pytest.mark.parametrize("changes", WARM_UPS, ids=str)
def test_a_warm_up_is_taken_where_the_official_checker_takes_it(changes, tmp_path):
    point = pytest.importorskip("submission_checker.models.file.point_config")
    stated = {"duration_s": 120, "requests_issued": 512, "requests_completed": 512, "concurrency": 64}
    stated |= {"data_source": "accuracy dataset"} | changes
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in stated.items())
    path = write_system(tmp_path, f"{SYSTEM}\n[warm_up]\n{lines}\n")
    try:
        point.WarmupSpec.model_validate(stated)
    except ValueError:
        with pytest.raises(ConfigError, match=r"\[warm_up\]: "):
            read_system(path)
    else:
        read_system(path)


def test_a_toml_that_is_not_there_names_the_example(tmp_path):
    with pytest.raises(ConfigError, match=EXAMPLE):
        read_system(tmp_path / "absent.toml")


def test_a_point_differs_in_what_its_table_has(tmp_path):
    text = changed('= "8xH200" ', f'= "{20 * "x"}"')  # the longest that is taken
    own = read_system(write_system(tmp_path, f"{text}\n[points.r1]\ntensor_parallel = 8\n"))
    one, other = own.parallelism_of("r1"), own.parallelism_of("r64")
    assert (one.tensor_parallel, one.data_parallel) == (8, 8)
    assert (other.tensor_parallel, other.data_parallel) == (1, 8)


def test_the_beginning_is_complete_but_for_what_is_marked(tmp_path):
    write_runs(tmp_path)
    machine = {"driver": 'with "quotes"', "accelerators_per_node": "8", "host_processor_model_name": "X"}
    text = "\n".join(starter(machine, read_runs(run_folders([tmp_path]))))
    for name in ("submitter", "submission_id", "system_id"):
        text = text.replace(f'{name} = ""', f'{name} = "x"', 1)
    found = read_system(write_system(tmp_path, text))
    assert found.implementation == "llama.cpp" and found.target_cohort == ""
    (node,) = found.node_types
    assert (node.driver, node.accelerators, node.host_processor_model_name) == ('with "quotes"', 8, "X")
    assert found.model.model_name == "gpt-oss-120b"
    assert 'cooling = ""  # needed' in text and 'target_cohort = ""  # needed' in text


def test_the_ranks_of_all_servers_behind_a_router_count(tmp_path):
    (one, *_) = read_runs(write_runs(tmp_path))
    settings = {"tp_size": 4, "pp_size": 2}
    router = Router("SMG", servers=4)
    servers = (replace(one.run.servers[0], dp_size=2, router=router, settings=settings),)
    lines = list(starter({}, [replace(one, run=replace(one.run, servers=servers))]))
    assert {"data_parallel = 8", "tensor_parallel = 4", "pipeline_parallel = 2"} < set(lines)
    assert {"accelerators_per_node = 0  # needed", "number_of_nodes = 1"} < set(lines)
