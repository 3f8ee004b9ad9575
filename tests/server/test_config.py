from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenwire_server.config import ConfigError, LLMConfig, default_config, load_config, load_file

MODEL: dict[str, Any] = {"model_loading_config": {"model_id": "m"}}


def problem(data: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "where", "hint"),
    [
        ({"llm_confgs": [MODEL]}, "llm_confgs", "llm_configs"),
        (
            {"llm_configs": [{**MODEL, "engine_kwrgs": {}}]},
            "llm_configs[0]: unknown key `engine_kwrgs`",
            "engine_kwargs",
        ),
        (
            {"llm_configs": [{"model_loading_config": {"model_id": "m", "model_sorce": "x"}}]},
            "llm_configs[0].model_loading_config: unknown key `model_sorce`",
            "model_source",
        ),
        (
            {"llm_configs": [{**MODEL, "deployment_config": {"autoscaling_config": {"min_replica": 1}}}]},
            "llm_configs[0].deployment_config.autoscaling_config: unknown key `min_replica`",
            "min_replicas",
        ),
        ({"llm_configs": [MODEL], "limits": {"max_nn": 1}}, "limits: unknown key `max_nn`", "max_n"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_right_one_at_any_depth(data: Any, where: str, hint: str) -> None:
    text = problem(data)
    assert where in text
    assert f"did you mean `{hint}`?" in text


def test_every_wrong_value_is_named_by_its_path() -> None:
    text = problem({"llm_configs": [{"model_loading_config": {"model_id": ""}}], "limits": {"max_n": 1000}})
    assert "llm_configs[0].model_loading_config.model_id: " in text
    assert "limits.max_n: " in text


def test_the_old_name_of_the_target_is_taken_with_a_warning() -> None:
    autoscaling = {"target_num_ongoing_requests_per_replica": 7}
    with pytest.warns(UserWarning, match="target_ongoing_requests"):
        config = load_config({"llm_configs": [{**MODEL, "deployment_config": {"autoscaling_config": autoscaling}}]})
    read = config.llm_configs[0].deployment_config.autoscaling_config
    assert read is not None
    assert read.target_ongoing_requests == 7


def test_what_the_direct_topology_cannot_do_is_refused() -> None:
    zero = {**MODEL, "deployment_config": {"autoscaling_config": {"min_replicas": 0}}}
    other = {"model_loading_config": {"model_id": "other"}}
    assert "min_replicas 0" in problem({"llm_configs": [zero], "topology": "direct"})
    assert "one model" in problem({"llm_configs": [MODEL, other], "topology": "direct"})
    assert "`m` is there twice" in problem({"llm_configs": [MODEL, MODEL]})
    assert not load_config({"llm_configs": [MODEL]}).routed
    for config in (
        {"llm_configs": [zero]},
        {"llm_configs": [MODEL, other]},
        {"llm_configs": [MODEL], "topology": "routed"},
    ):
        assert load_config(config).routed


def test_config_objects_and_mappings_are_both_welcome() -> None:
    assert load_config({"llm_configs": [LLMConfig.model_validate(MODEL)]}) == load_config({"llm_configs": [MODEL]})


def test_keys_come_from_the_config_or_else_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENWIRE_API_KEYS", "a,b")
    assert load_config({"llm_configs": [MODEL]}).secret_keys() == ["a", "b"]
    config = load_config({"llm_configs": [MODEL], "api_keys": ["c"]})
    assert config.secret_keys() == ["c"]
    assert "'c'" not in repr(config)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llm_configs: [", "is not YAML at line"),
        ("- a\n- b\n", "must be a mapping"),
        ("llm_configs: []\n", "llm_configs"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected) as caught:
        load_file(path)
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_file(tmp_path / "none.yaml")


def test_a_serve_config_file_is_read_for_its_args(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(
        "applications:\n- name: tokenwire\n  import_path: tokenwire_server:build_app\n"
        "  args: {llm_configs: [{model_loading_config: {model_id: m}}]}\n"
    )
    assert load_file(path).llm_configs[0].model_loading_config.model_id == "m"


def test_the_default_is_the_embedded_model_in_float32() -> None:
    (llm,) = default_config().llm_configs
    assert llm.model_loading_config.source.startswith("embedded:")
    assert llm.engine_kwargs["dtype"] == "float32"
