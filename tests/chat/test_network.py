"""Proxies and certificates of the environment: one sentence names the variable, and nothing shows its password."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from importlib.util import find_spec

import pytest
from chat_server import ChatServer
from completion_server import CompletionServer
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.chat.message_server import MessageServer
from rllib_llm_comm.core.errors import UserError, without_passwords
from tests.refusal import refused

FAR = "http://10.255.255.1:8000/v1"
DEAD = "http://ann:p4ss@127.0.0.1:9"
VARIABLES = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_DIR", "SSLKEYLOGFILE"]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, chat_client_at_home):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def client(url: str, **settings) -> ChatClient:
    return ChatClient("tiny", url, requests_per_minute=1e6, max_retries=0, timeout=5, **settings)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("ALL_PROXY", "socks5://ann:p4ss@127.0.0.1:1080", "pip install socksio"),
        ("ALL_PROXY", "socks://ann:p4ss@127.0.0.1:1080", "begins with one of http://, https://, socks5://"),
        ("HTTP_PROXY", "http://ann:p4ss@host:port", "must be an address"),
        ("http_proxy", "ann:p4ss@host:port", "must be an address"),
        ("SSL_CERT_FILE", "/nowhere.pem", "No such file"),
        ("SSL_CERT_FILE", "/", "a file with certificates"),
        ("SSL_CERT_FILE", "empty.pem", "holds no certificate"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_before_anything_is_sent(name, value, remedy, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.pem").write_text("no certificate\n")
    monkeypatch.setenv(name, value)
    if "socks5" in value and find_spec("socksio") is not None:
        pytest.skip("socksio is installed")
    with ChatServer("hello") as server:
        asked = client(server.url)
        for ask in (lambda: asked.complete("hi"), lambda: MessageServer(server.url).write(["hi"])):
            with refused(name) as caught:
                ask()
            assert remedy in str(caught.value) and "p4ss" not in str(caught.value)
        assert not server.requests and asked.counters.requests == 0
        monkeypatch.delenv(name)
        assert asked.complete("hi") == "hello"


def test_a_file_for_keys_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "missing" / "keys"))
    with ChatServer("hello") as server, refused("SSLKEYLOGFILE"):
        client(server.url).complete("hi")


@pytest.mark.parametrize(
    ("name", "url"), [("HTTP_PROXY", FAR), ("ALL_PROXY", FAR), ("https_proxy", FAR.replace("http:", "https:"))]
)
def test_a_dead_proxy_is_named(name, url, monkeypatch):
    monkeypatch.setenv(name, DEAD)
    for ask in (lambda: client(url).complete("hi"), lambda: MessageServer(url, max_retries=0).write(["hi"])):
        with pytest.raises((ChatError, UserError), match=f"http://127.0.0.1:9 of `{name}`") as caught:
            ask()
        assert "p4ss" not in str(caught.value) and "NO_PROXY" in str(caught.value)


def test_a_dead_proxy_is_blamed_only_where_it_was_asked(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ChatServer("hello") as server:
        assert client(server.url).complete("hi") == "hello"
    with pytest.raises(ChatError, match="no connection") as caught:
        client(server.url).complete("hi")
    assert "PROXY" not in str(caught.value)


def test_a_proxy_that_refuses_is_named(monkeypatch):
    with ChatServer((407, {}), 502, "hello") as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://ann:p4ss@{proxy.url[7:-3]}")
        monkeypatch.setenv("HTTPS_PROXY", f"http://ann:p4ss@{proxy.url[7:-3]}")
        for words in ("HTTP 407: .*user and password", "HTTP 502: "):
            with pytest.raises(ChatError, match=words) as caught:
                client(FAR).complete("hi")
            assert "of `HTTP_PROXY`" in str(caught.value) and "p4ss" not in str(caught.value)
        assert client(FAR).complete("hi") == "hello"
        with pytest.raises(ChatError, match="of `HTTPS_PROXY`, which answers 501"):  # the server here knows no CONNECT
            client(FAR.replace("http:", "https:")).complete("hi")


@pytest.mark.parametrize("value", ["http://[", ",,", "[::1", "127.0.0.0/99", "*.", "\t", "ä", "http://127.0.0.1:99999"])
def test_an_odd_list_of_exceptions_is_no_bug(value, monkeypatch):
    monkeypatch.setenv("NO_PROXY", value)
    with ChatServer("hello") as server:
        assert client(server.url).complete("hi") == "hello"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate")
def test_an_untrusted_certificate_names_what_to_trust(monkeypatch, tmp_path):
    monkeypatch.delenv("SSL_CERT_FILE")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days",
         "2", "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with ChatServer("hello") as server, CompletionServer(list) as completions:
        for each in (server, completions):
            each._server.socket = context.wrap_socket(each._server.socket, server_side=True)
        url, other = (each.url.replace("http:", "https:") for each in (server, completions))
        for ask in (lambda: client(url).complete("hi"), lambda: MessageServer(other, max_retries=0).write(["hi"])):
            with pytest.raises((ChatError, UserError), match="self.signed.*`SSL_CERT_FILE`"):
                ask()
        monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
        with pytest.raises(ChatError, match="`SSL_CERT_DIR` is '/nowhere'"):
            client(url).complete("hi")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert client(url).complete("hi") == "hello"


@pytest.mark.parametrize("url", ["http://", "http:///v1", "http://[", "http://host:port/v1", "http://a b/v1", "http://h\x01",
                                 "http://h/" + "v" * 99_999, "http://h?password=p4ss", "ftp://ann:p4ss@h/v1",
                                 "http://ann:p4ss@h/v1", "http://ann:p4/ss@h/v1"])  # fmt: skip
def test_what_is_no_address_is_refused(url):
    with refused("base_url") as caught:
        ChatClient("tiny", url)
    assert "p4" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ann:p4ss@h:80/v1", "http://h:80/v1"),
        ("http://token@h", "http://h"),
        ("got http://ann:p4@ss@h and ftp://b:c@d.", "got http://h and ftp://d."),
        ("http://ann:p4/ss@h:80/v1", "http://h:80/v1"),
        ("http://ann:p4?s#s@h", "http://h"),
        ("'http://ann:p4'ss@h'", "'http://h'"),
        ("ann:p4ss@h:3128", "h:3128"),
        ("postgresql://h/runs?user=ann&password=p4ss&x=1", "postgresql://h/runs?user=ann&password=[hidden]&x=1"),
        ("https://h/a?api_key=p4ss", "https://h/a?api_key=[hidden]"),
        ("https://lab.example:5000/@me", "https://lab.example:5000/@me"),
        ("sqlite:////data/runs@home.db", "sqlite:////data/runs@home.db"),
        ("write to ann@lab.example: it is 3@4", "write to ann@lab.example: it is 3@4"),
        ("`policy` is 'hf:ann/cooks@main'", "`policy` is 'hf:ann/cooks@main'"),
    ],
)
def test_addresses_are_shown_without_users_and_passwords(text, shown):
    assert without_passwords(text) == shown == without_passwords(shown)


@given(
    st.text(st.characters(codec="ascii", exclude_categories=["Z", "C"]), min_size=9).filter(lambda p: p[0].isalpha())
)
def test_no_password_is_shown(password):
    told = without_passwords(f"it met postgresql://ann:{password}@lab/runs today")
    assert told == "it met postgresql://lab/runs today"
