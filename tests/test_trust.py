"""Names of code and secrets in data: what is vouched for, and where keys may go."""

import pytest

from rllib_llm_comm.core import trust


def test_code_is_vouched_for_by_the_name_of_its_module():
    assert not trust.is_vouched_for("my_things.parts.Callbacks") and trust.names_code("my_things:player")
    trust.vouch_for(["my_things"])
    try:
        assert trust.is_vouched_for("my_things.parts.Callbacks") and not trust.names_code("my_things:player")
        assert not trust.is_vouched_for("my_things_of_others.Callbacks") and trust.names_code("my_things2:player")
    finally:
        trust._vouched_modules.discard("my_things")
    assert trust.names_code("my_things:Game-v0") and trust.names_code("my.things:Game.Inner")
    assert not trust.names_code("zoo:verco_salad") and not trust.names_code("cuda:1") and not trust.names_code("a: b")


OPENAI = "https://api.openai.com/v1"
LOCAL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("settings", "leaks"),
    [
        ({"model": "m"}, False),
        ({"base_url": OPENAI}, False),
        ({"base_url": LOCAL}, False),
        ({"base_url": "http://localhost:1/v1"}, False),
        ({"base_url": "http://[::1]/v1"}, False),
        ({"base_url": "http://127.0.0.1.example.org"}, True),
        ({"base_url": "http://10.0.0.7/v1", "api_key_env": "MY_API_KEY"}, False),
        ({"base_url": "https://api.deepseek.com", "api_key_env": "DEEPSEEK_API_KEY"}, False),
        ({"base_url": "https://API.deepseek.com:443/v1", "api_key_env": "DEEPSEEK_API_KEY"}, False),
        ({"base_url": "https://example.org/v1"}, True),
        ({"base_url": "http://api.openai.com/v1"}, True),
        ({"base_url": "https://api.openai.com.example.org"}, True),
        ({"base_url": "https://api.openai.com@example.org"}, True),
        ({"base_url": "https://localhost.example.org"}, True),
        ({"base_url": "https://[::1", "api_key_env": "OPENAI_API_KEY"}, True),
        ({"base_url": "https://api.deepseek.com"}, True),
        ({"base_url": OPENAI, "api_key_env": "AWS_SECRET_ACCESS_KEY"}, True),
        ({"base_url": LOCAL, "api_key_env": "AWS_SECRET_ACCESS_KEY"}, True),
        ({"base_url": LOCAL, "api_key_env": "HF_TOKEN"}, True),
        ({"model": "m", "api_key_env": "STRIPE_API_KEY"}, True),
        ({"base_url": LOCAL, "api_key_env": {"grid_search": ["MY_API_KEY", "AWS_SECRET_ACCESS_KEY"]}}, True),
        ({"base_url": {"choice": [OPENAI, "https://example.org/v1"]}}, True),
        ({"base_url": {"choice": [OPENAI, LOCAL]}, "api_key_env": {"by_seed": ["OPENAI_API_KEY"]}}, False),
        ({"base_url": "http://[2001:0:808:808::1]/v1", "api_key_env": "MY_API_KEY"}, True),
        ({"base_url": "http://[2002:808:808::1]/v1", "api_key_env": "MY_API_KEY"}, True),
        ({"base_url": "http://[fd00::1]/v1", "api_key_env": "MY_API_KEY"}, False),
    ],
)
def test_a_key_goes_to_its_provider_alone(settings, leaks):
    found = list(trust.secrets_in({"teacher": {"name": "chat", **settings}, "pool": [settings]}, "a.config"))
    assert [place for place, _, _ in found] == ["a.config.teacher", "a.config.pool[0]"] * leaks
