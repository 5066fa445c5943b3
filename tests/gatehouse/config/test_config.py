"""What `gateways.toml` and the environment may say, and what is said about everything else."""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gatehouse.config.config import AuthSettings, Config, ConfigError, HubSettings, KernelSection, load
from gatehouse.gateways.contract import CONTRACT, GatewaySpec


@dataclass
class MqttSettings:
    max_packet_ids: int = field(default=10, metadata={"help": "h", "min": 1, "max": 65535})
    banner: str | None = field(default=None, metadata={"help": "h"})
    names: tuple[str, ...] = field(default=("a",), metadata={"help": "h", "max": 3})
    ratio: float = field(default=0.5, metadata={"help": "h"})
    password: str = field(default="", metadata={"help": "h", "secret": True})


@dataclass
class KafkaSettings:
    advertise: str = field(default="127.0.0.1:9092", metadata={"help": "h"})


SESSION: Any = print
SPECS = {
    "mqtt": GatewaySpec(name="mqtt", contract=CONTRACT, door=1, config=MqttSettings,
                        default_listen=("127.0.0.1:1883",), session=SESSION),
    "kafka": GatewaySpec(name="kafka", contract=CONTRACT, door=0, config=KafkaSettings,
                         default_listen=("127.0.0.1:9092",), session=SESSION),
}


@pytest.fixture
def read(tmp_path):
    def read(text: str, **environ: str) -> Config:
        path = tmp_path / "gateways.toml"
        path.write_text(text)
        return load(path, environ, SPECS)
    return read


@pytest.fixture
def problem(read, tmp_path):
    """The one line that is wrong, without the file's name where it is the file that is wrong."""
    def problem(text: str, **environ: str) -> str:
        with pytest.raises(ConfigError) as caught:
            read(text, **environ)
        assert len(caught.value.lines) == 1, caught.value.lines
        return caught.value.lines[0].removeprefix(f"{tmp_path / 'gateways.toml'}: ")
    return problem


def test_an_empty_file_has_the_documented_defaults(read, tmp_path):
    config = read("")
    assert (config.hub.name, config.kernel.fsync, config.kernel.default_partitions) == ("gatehouse", "commit", 4)
    assert config.data_dir == tmp_path / "data"
    assert config.doors == ()
    assert config.notices == ("no [gateways.NAME] table: no door opens",)


def test_the_file_in_the_repository_says_the_defaults():
    path = Path(__file__).parents[3] / "gateways.toml"
    text = path.read_text()
    assert "[gateways.mqtt]" in text
    others = {name: GatewaySpec(name=name, contract=CONTRACT, door=door, config=MqttSettings, default_listen=(),
                                session=SESSION)
              for name, door in (("http", 2), ("amqp", 3))}
    config = load(path, {}, SPECS | others)
    assert (config.hub, config.kernel, config.auth) == (HubSettings(), KernelSection(), AuthSettings())
    assert [door.spec.name for door in config.doors] == ["mqtt", "http", "amqp", "kafka"]


def test_a_door_reads_its_own_settings(read):
    config = read('[gateways.mqtt]\nlisten=["127.0.0.1:0", "[::1]:0"]\nmax_packet_ids=5\nbanner="hi"\n'
                  'names=["x"]\nratio=1')
    door, = config.doors
    assert [str(listen) for listen in door.listen] == ["127.0.0.1:0", "[::1]:0"]
    assert door.settings == MqttSettings(5, "hi", ("x",), 1.0)


def test_a_door_without_listen_takes_its_default(read):
    assert [str(listen) for listen in read("[gateways.kafka]").doors[0].listen] == ["127.0.0.1:9092"]


@pytest.mark.parametrize(("text", "line"), [
    ('[kernel]\nfsynk = "never"', "kernel.fsynk: unknown setting; did you mean 'fsync'?"),
    ('[kernel]\nfsync = "nevr"', "kernel.fsync: 'nevr' is none of commit, interval, never; did you mean 'never'?"),
    ('[kernel]\ndefault_partitions = "4"', "kernel.default_partitions: must be a whole number"),
    ("[kernel]\ndefault_partitions = true", "kernel.default_partitions: must be a whole number"),
    ("[kernel]\ndefault_partitions = 0", "kernel.default_partitions: must be at least 1"),
    ("[kernel]\nmax_message_bytes = 2000000000", "kernel.max_message_bytes: must be at most 1073741824"),
    ("[kernel]\nauto_create_topics = 1", "kernel.auto_create_topics: must be true or false"),
    ("[kernal]\nx = 1", "kernal: unknown section; did you mean 'kernel'?"),
    ("kernel = 3", "kernel: must be a table: [kernel]"),
    ("[relay]\nproxi = 'http://proxy:3128'", "relay.proxi: unknown setting; did you mean 'proxy'?"),
    ("[relay]\nurl = 'ws://relay.example.com'",
     "relay.url: must be wss://: without TLS only a host of this machine is dialled"),
    ("[[relay.links]]\nname = 'a'\nsend = ['b/#/c/##']",
     "relay.links[0]: '+' and '#' stand alone between slashes, not as in '##'"),
    ("[[relay.links]]\nname = 'a'\nrename = ['b/# -> ../c/#']", "relay.links[0]: '../c/#' is no side of a rename: "
     "levels without wildcards, no `$` in front, no `..`, and /# at the end"),
    ("[users]\nx = 1", "users: is no section: users are made by `gatehouse users create`"),
    ("[auth]\nusers = []", "auth.users: is no setting: users are made by `gatehouse users create`"),
    ("[gateways.mqqt]", "gateways.mqqt: unknown door; did you mean 'mqtt'?"),
    ("[gateways]\nmqtt = 1", "gateways.mqtt: must be a table: [gateways.mqtt]"),
    ("[gateways.mqtt]\nlisten = []", None),
    ('[gateways.mqtt]\nlisten = "127.0.0.1:1"',
     "gateways.mqtt.listen: must be a list of texts HOST:PORT or tables { address = ... }"),
    ('[gateways.mqtt]\nlisten = ["1883"]', "gateways.mqtt.listen: '1883' is not HOST:PORT with a port from 0 to 65535"),
    ('[gateways.mqtt]\nlisten = ["h:70000"]',
     "gateways.mqtt.listen: 'h:70000' is not HOST:PORT with a port from 0 to 65535"),
    ('[gateways.mqtt]\nlisten = ["::1:1883"]',
     "gateways.mqtt.listen: '::1:1883': an IPv6 address stands in brackets, [::1]:1883"),
    ('[gateways.mqtt]\nlisten = [{ addres = "127.0.0.1:1" }]',
     "gateways.mqtt.listen[0].address: is missing and has no default"),
    ('[gateways.mqtt]\nlisten = ["127.0.0.1:1", { address = "127.0.0.1" }]',
     "gateways.mqtt.listen[1]: '127.0.0.1' is not HOST:PORT with a port from 0 to 65535"),
    ('[gateways.mqtt]\nlissten = ["127.0.0.1:1"]', "gateways.mqtt.lissten: unknown setting; did you mean 'listen'?"),
    ('[gateways.mqtt]\ntls = { cert = "c" }',
     "gateways.mqtt.tls.key: is missing and has no default"),
    ("[gateways.mqtt]\nmax_packet_ids = 0", "gateways.mqtt.max_packet_ids: must be at least 1"),
    ('[gateways.mqtt]\nnames = ["a", "b", "c", "d"]', "gateways.mqtt.names: must be at most 3 entries"),
    ("[gateways.mqtt]\nbanner = 1", "gateways.mqtt.banner: must be a text, or left out"),
    ('[gateways.mqtt]\nlisten = ["127.0.0.1:9092"]\n[gateways.kafka]',
     "gateways.kafka.listen: port 9092 is already taken by gateways.mqtt.listen (127.0.0.1:9092); choose another"),
    ('[gateways.mqtt]\nlisten = ["127.0.0.1:1", "127.0.0.1:1"]',
     "gateways.mqtt.listen: port 1 is already taken by gateways.mqtt.listen (127.0.0.1:1); choose another"),
    ('[gateways.mqtt]\nlisten = ["0.0.0.0:1883"]',
     "gateways.mqtt.listen: 0.0.0.0:1883 can be reached from outside while auth.allow_anonymous is true; listen on "
     "127.0.0.1 or set auth.allow_anonymous = false"),
    ('[auth]\nallow_anonymous = false\n[gateways.kafka]\nlisten = [":9092"]',
     "gateways.kafka.advertise: 127.0.0.1:9092 is loopback while *:9092 is public: clients elsewhere would be sent to "
     "themselves; give the name they reach this hub by"),
    ('[gateways.kafka]\nadvertise = "0.0.0.0:9092"',
     "gateways.kafka.advertise: '0.0.0.0:9092' names no host that a client can connect to; give one"),
    ('[gateways.kafka]\nadvertise = "hub"',
     "gateways.kafka.advertise: 'hub' is not HOST:PORT with a port from 0 to 65535"),
    ("routes = 1", "routes: must be a list of tables: [[routes]]"),
    ('[[routes]]\nfilter = "a/#"', "routes[0].topic: is missing and has no default"),
    ('[[routes]]\nfilter = "a/#"\ntopic = "t"\npartition_keys = "x"',
     "routes[0].partition_keys: unknown setting; did you mean 'partition_key'?"),
])
def test_what_is_wrong_is_said_in_one_line(problem, read, text, line):
    if line is None:
        assert read(text).doors[0].listen == ()
    else:
        assert problem(text) == line


def test_not_toml(problem):
    assert problem("[kernel").startswith("not valid TOML: ")


def test_no_file(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.toml", {}, SPECS)
    line, = caught.value.lines
    assert line == (f"{tmp_path / 'none.toml'}: cannot read it: No such file or directory; give another file with "
                    "--config")


def test_all_problems_are_found_at_once(read):
    with pytest.raises(ConfigError) as caught:
        read('[kernel]\nfsync = "x"\ndefault_partitions = 0\n[gateways.mqqt]\n[what]')
    assert len(caught.value.lines) == 4


def test_the_environment_overrides(read):
    config = read('[kernel]\nfsync = "commit"', GATEHOUSE__KERNEL__FSYNC="never",
                  GATEHOUSE__KERNEL__DEFAULT_PARTITIONS="7",
                  GATEHOUSE__KERNEL__AUTO_CREATE_TOPICS="false",
                  GATEHOUSE__GATEWAYS__MQTT__LISTEN="127.0.0.1:1, 127.0.0.1:2",
                  GATEHOUSE__GATEWAYS__MQTT__NAMES='["a", "b"]', GATEHOUSE__GATEWAYS__MQTT__BANNER="",
                  GATEHOUSE__ROUTES='[{"filter": "a/#", "topic": "t"}]', UNRELATED="x")
    assert (config.kernel.fsync, config.kernel.default_partitions, config.kernel.auto_create_topics) == ("never", 7,
                                                                                                         False)
    door, = config.doors
    assert [str(listen) for listen in door.listen] == ["127.0.0.1:1", "127.0.0.1:2"]
    assert door.settings == MqttSettings(names=("a", "b"))
    assert config.routes.route("a/b").topic == "t"


@pytest.mark.parametrize(("variable", "value", "line"), [
    ("GATEHOUSE__KERNEL__FSYNK", "x", "kernel.fsynk: unknown setting; did you mean 'fsync'?"),
    ("GATEHOUSE__KERNEL__DEFAULT_PARTITIONS", "many", "kernel.default_partitions: must be a whole number"),
    ("GATEHOUSE__KERNEL__DEFAULT_PARTITIONS", "0", "kernel.default_partitions: must be at least 1"),
    ("GATEHOUSE__GATEWAYS__MQTT__LISTEN", "1883",
     "gateways.mqtt.listen: '1883' is not HOST:PORT with a port from 0 to 65535"),
    ("GATEHOUSE__GATEWAYS__MQTT__NAMES", "[1", "gateways.mqtt.names: must be a list of texts"),
    ("GATEHOUSE__GATEWAYS__MQQT__LISTEN", "x", "gateways.mqqt: unknown door; did you mean 'mqtt'?"),
    ("GATEHOUSE__KERNAL__FSYNC", "x", "kernal: unknown section; did you mean 'kernel'?"),
    ("GATEHOUSE__KERNEL", "x", "kernel: a setting is GATEHOUSE__SECTION__NAME or GATEHOUSE__GATEWAYS__DOOR__NAME"),
    ("GATEHOUSE__ROUTES", "x", "routes: must be a JSON list of objects"),
])
def test_a_wrong_variable_is_named(problem, variable, value, line):
    assert problem("", **{variable: value}) == f"environment {variable}: {line}"


def test_a_secret_comes_from_a_file_or_the_environment(read, tmp_path):
    (tmp_path / "secret").write_text("s3cret\n")
    assert read('[gateways.mqtt]\npassword = { file = "secret" }').doors[0].settings.password == "s3cret"
    assert read('[gateways.mqtt]\npassword = { env = "PW" }', PW="other").doors[0].settings.password == "other"
    assert read('[gateways.mqtt]\npassword = "plain"').doors[0].settings.password == "plain"


@pytest.mark.parametrize(("value", "line"), [
    ('{ file = "none" }', "cannot read the secret file none: No such file or directory"),
    ('{ env = "NONE" }', "the environment variable NONE is not set"),
    ('{ vault = "x" }', 'a secret is a text, { file = "NAME" } or { env = "NAME" }'),
])
def test_a_secret_that_cannot_be_read(problem, value, line):
    assert problem(f"[gateways.mqtt]\npassword = {value}") == f"gateways.mqtt.password: {line}"


def test_only_a_secret_may_be_a_table(problem):
    assert problem('[gateways.mqtt]\nbanner = { env = "X" }') == "gateways.mqtt.banner: must be a text, or left out"
