"""The search for secrets: forms of many issuers in files of several kinds, and text that holds none.

The words are drawn at random, so that no key stands in this file.
"""

import base64
import gzip
import json
import random
import string

import pytest

from harness.submission.tree.secrets import find_secrets
from tests.runs import ROOT

DRAWN = random.Random(5)
LETTERS = string.ascii_letters
WORD = LETTERS + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"


def word(length, letters=WORD):
    return "".join(DRAWN.choice(letters) for _ in range(length))


def base64_of(length):
    return base64.b64encode(DRAWN.randbytes(length)).decode()


def token():
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234", "name": "alice", "iat": 1516239022})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, word(43)])


def private_key(kind, lines=8):
    body = "\n".join(base64_of(48) for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


SECRETS = {
    "AWS credentials": f"aws_secret_access_key = {base64_of(30)}",
    "AWS key id": "key: AKIA" + word(16, UPPER),
    "header with a JWT": f"Authorization: Bearer {token()}",
    "header with another token": f"Authorization: Bearer {word(40)}",
    "header with a password": "Authorization: Basic " + base64.b64encode(b"alice:x7-Kq2!pZ9").decode(),
    "JWT": token(),
    "PGP": private_key("PGP PRIVATE KEY BLOCK"),
    "RSA": private_key("RSA PRIVATE KEY"),
    "first line of a key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "OpenSSH": private_key("OPENSSH PRIVATE KEY"),
    "PuTTY": "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none",
    "service account": json.dumps({"private_key": private_key("PRIVATE KEY")}),
    "kubeconfig": "client-key-data: " + base64.b64encode(private_key("RSA PRIVATE KEY").encode()).decode(),
    "Slack webhook": f"https://hooks.slack.com/services/T{word(8, UPPER)}/B{word(8, UPPER)}/{word(24)}",
    "Discord webhook": f"https://discord.com/api/webhooks/{word(18, string.digits)}/{word(68)}",
    "Azure storage": f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={base64_of(64)}",
    "Azure SAS": f"https://acme.blob.core.windows.net/c/f?sv=2022-11-02&sp=r&sig={word(43)}%3D",
    "Databricks": "dapi" + word(32, HEX),
    "Docker": '{"auths": {"registry": {"auth": "'
    + base64.b64encode(b"al:" + word(20).encode()).decode()
    + '"}}}',
    "npm": f"//registry.npmjs.org/:_authToken=npm_{word(36)}",
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + word(150),
    "SendGrid": f"SG.{word(22)}.{word(43)}",
    "Stripe": "sk_live_" + word(24),
    "Twilio": "TWILIO_AUTH_TOKEN=" + word(32, HEX),
    "netrc": f"machine api.acme.com login alice password {word(14)}",
    "flag": f"python -m sglang.launch_server --api-key {word(24)}",
    "flag with =": f"python -m sglang.launch_server --api-key={word(24)}",
    "flag with words": "vllm serve model --api-key acme-internal",
    "lower-case variable": f"export sglang_api_key={word(24)}",
    "variable without a digit": "SERVER_API_KEY=" + word(40, LETTERS),
    "YAML": f"api_key: {word(24)}",
    "YAML without a digit": "password: correcthorsebattery",
    "JSON": '{"password": "' + word(12) + '"}',
    "header of a key": f"X-API-Key: {word(32)}",
    "Anthropic": f"sk-ant-api03-{word(93)}AA",
    "OpenAI": "sk-proj-" + word(60),
    "Hugging Face": "hf_" + word(34, LETTERS),
    "Weights & Biases": "wandb login " + word(40, HEX),
    "Cohere": "COHERE_API_KEY=" + word(40),
    "Replicate": "r8_" + word(37),
    "DigitalOcean": "dop_v1_" + word(64, HEX),
    "Vault": "hvs." + word(95),
    "Terraform": f"{word(14)}.atlasv1.{word(67)}",
    "Grafana": f"glsa_{word(32)}_{word(8, HEX)}",
    "Telegram": f"{word(10, '123456789')}:AA{word(33)}",
    "Artifactory": "AKCp" + word(69),
    "GitHub": "ghp_" + word(36),
    "GitLab": "glpat-" + word(20),
    "NVIDIA": "nvapi-" + word(64),
    "Google": "AIza" + word(35),
    "an unknown issuer": "acme-prod-" + word(32),
    "htpasswd": f"alice:$apr1${word(8)}${word(22)}",
    "bcrypt": f"alice:$2y$05${word(53)}",
    "PostgreSQL": f"postgres://alice:{word(12)}@db.acme.com:5432/prod",
    "Redis": f"redis://:{word(20)}@10.0.0.1:6379/0",
    "git": f"https://{word(40)}@git.acme.com/x.git",
    "ADO.NET": f"Server=db.acme.com;User Id=alice;Password={word(12)};",
    "ssh": "SSH_PASSPHRASE=Xk2-jjw-Plo9",
    "sshpass": "sshpass -p Xk2jjwPlo9 ssh alice@node1",
    "docker login": f"docker login -u alice -p {word(16)} registry.acme.com",
    "XML": f"<password>{word(14)}</password>",
    "JDBC": f"jdbc:mysql://db/x?user=root&password={word(12)}",
    "Ansible": f"node1 ansible_ssh_pass={word(12)}",
    "BMC": f"ipmitool -I lanplus -H 10.0.0.1 -U admin -P {word(12)} power status",
    "curl": f"curl -u alice:{word(12)} https://x.acme.com",
}
HARMLESS = (
    "export HF_TOKEN=$(cat token)",
    "token = 'the_first_token_of_the_answer'",
    "url = f'https://{user}:{password}@{host}'",
    "max_new_tokens = 10240",
    "eos_token: <|endoftext|>",
    "tokenizer: meta-llama/Llama-3.1-8B-Instruct",
    "hash=" + word(64, HEX),
    "commit " + word(40, HEX),
    'api_key = os.environ["OPENAI_API_KEY"]',
    'client = OpenAI(api_key="EMPTY")',
    "password: str = field(default='')",
    "--api-key YOUR_API_KEY",
    "self.secret_key = secret_key",
    "HF_TOKEN='/srv/build/data/hub/models--nvidia--Qwen3-VL-235B-A22B-NVFP4'",
    "max_num_token = _FI_MAX_SIZES.get(world_size)",
    "if password = chosen_by_user then",
    "<password>the password of the account",
    "class DLRMv2Calibrator(trt.IInt8EntropyCalibrator2):",
    '{"id": "chatcmpl-' + word(32) + '"}',
    '{ "seq_id" : 3, "qsl_idx" : 3, "data" : "' + word(400, HEX) + '", "token_count" : 25 }',
    '"token_data" : "' + word(400, HEX) + '"',
)


def found(path, content):
    path.write_bytes(content if isinstance(content, bytes) else f"# a line\n{content}\n".encode())
    return [(one.line, one.kind) for one in find_secrets([path])]


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_in_its_line(tmp_path, kind):
    assert [line for line, _ in found(tmp_path / "run.sh", SECRETS[kind])][:1] == [2]


@pytest.mark.parametrize("line", HARMLESS)
@pytest.mark.parametrize("name", ["run.py", "run.sh"])
def test_other_text_is_not(tmp_path, name, line):
    assert found(tmp_path / name, line) == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
def test_the_encoding_does_not_matter(tmp_path, encoding):
    text = f"one\r\nexport my_api_key={word(24)}\r\nthree\r\n"
    assert found(tmp_path / "x.txt", text.encode(encoding)) == [(2, "a password or key")]


def test_neither_do_size_and_packing(tmp_path):
    text = b"x = 1\n" * 1_500_000 + f"hf_{word(34, LETTERS)}\n".encode()
    assert [line for line, _ in found(tmp_path / "x.txt", text)] == [1_500_001]
    assert [line for line, _ in found(tmp_path / "x.txt.gz", gzip.compress(text))] == [1_500_001]
    assert found(tmp_path / "damaged.gz", gzip.compress(text)[:99]) == []


def test_a_marked_line_is_left_out(tmp_path):
    line = SECRETS["lower-case variable"]
    assert [line for line, _ in found(tmp_path / "run.sh", f"{line}  # kingfisher:ignore\n\n{line}")] == [4]


def test_links_are_not_followed(tmp_path):
    (tmp_path / "key").write_text(SECRETS["YAML"])
    (tmp_path / "link").symlink_to(tmp_path / "key")
    assert list(find_secrets([tmp_path, tmp_path / "link", tmp_path / "none"])) == []


def test_the_published_code_has_none():
    folders = ("harness", "sut", "configs", "docs", "scripts", "sglang", "vllm", "pytorch", "datasets")
    paths = [path for name in folders for path in (ROOT / name).rglob("*") if "__pycache__" not in path.parts]
    assert [f"{one.path}:{one.line}" for one in find_secrets([*paths, *ROOT.glob("*.*")])] == []
