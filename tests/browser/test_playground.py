"""The playground in a headless Chromium: what a person sees and clicks. `make conformance` runs it."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import Cluster, serving

playwright = pytest.importorskip("playwright.async_api", reason="pip install playwright")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(120),
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]

CONFIG = """
llm_configs:
  - model_loading_config: {model_id: scripted}
    llm_engine: scripted
    engine_kwargs: {step_ms: 30}
admin: true
"""
LONG = "" + "Grüße 🦜 <b>not bold</b>. " * 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving(CONFIG, tmp_path_factory.mktemp("playground")) as running:
        yield running


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        await chromium.close()


@pytest.fixture
async def page(browser: Any, cluster: Cluster) -> AsyncIterator[Any]:
    """The playground; asserts at the end that the browser had nothing to complain of, and asked nobody else."""
    made = await browser.new_page(viewport={"width": 1200, "height": 800})
    complaints: list[str] = []
    asked: list[str] = []
    made.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("request", lambda request: asked.append(request.url))
    await made.goto(f"{cluster.base_url}/playground")
    yield made
    await made.close()
    # A refusal is in the console whatever the page makes of it.
    assert [one for one in complaints if "400 (Bad Request)" not in one] == []
    assert all(url.startswith((cluster.base_url, "data:")) for url in asked), asked


async def running_requests(cluster: Cluster) -> int:
    async with httpx.AsyncClient(base_url=cluster.base_url, trust_env=False) as client:
        loads = (await client.get("/tokenwire/admin/v1/load")).json()["replicas"]
    return sum(int(one.get("runningCount", 0)) for one in loads)


async def picture(page: Any, name: str) -> None:
    """Keeps a screenshot where `PICTURES` names a folder."""
    if folder := os.environ.get("PICTURES"):
        await page.screenshot(path=Path(folder) / f"{name}.png")


async def test_an_answer_streams_in(page: Any) -> None:
    assert await page.locator("#model option").all_text_contents() == ["scripted"]
    await page.fill("#prompt", "Grüße 🦜 <b>not bold</b>")
    assert "not bold" in await page.text_content("#code")
    await page.press("#prompt", "Enter")
    answer = page.locator(".turn.assistant")
    await playwright.expect(answer).to_contain_text("Grü")
    assert "not bold</b>" not in await answer.text_content(), "it came at once, and did not stream"
    await playwright.expect(answer).to_contain_text("Grüße 🦜 <b>not bold</b>")
    await playwright.expect(page.locator("#numbers")).to_contain_text("stop")
    numbers = await page.text_content("#numbers")
    assert re.fullmatch(r"first token \d+ ms · \d+ tokens · \d+\.\d tokens/s · stop", numbers), numbers
    await picture(page, "answer")


async def test_stop_stops_it_in_the_engine_too(page: Any, cluster: Cluster) -> None:
    await page.fill("#max-tokens", "2000")
    await page.fill("#prompt", LONG)
    await page.click("#send")
    answer = page.locator(".turn.assistant")
    await playwright.expect(answer).to_contain_text("not bold")
    assert await running_requests(cluster) == 1
    await page.click("#stop")
    await playwright.expect(page.locator("#numbers")).to_contain_text("stopped")
    began = time.monotonic()
    while await running_requests(cluster):
        assert time.monotonic() - began < 5
    text = await answer.text_content()
    assert len(text) < len(LONG) / 2
    await page.wait_for_timeout(300)
    assert await answer.text_content() == text
    # And it can be talked to again.
    await page.fill("#prompt", "again")
    await page.click("#send")
    await playwright.expect(page.locator(".turn.assistant").nth(1)).to_have_text("again")
    await picture(page, "stopped")


async def test_what_is_refused_is_shown(page: Any) -> None:
    await page.fill("#temperature", "7")
    await page.fill("#prompt", "hello")
    await page.press("#prompt", "Enter")
    await playwright.expect(page.locator(".turn.error")).to_contain_text("temperature")
    await page.fill("#temperature", "")


@pytest.mark.parametrize("kind", ["curl", "python", "grpcurl"])
async def test_the_same_call_is_shown(page: Any, kind: str) -> None:
    await page.fill("#prompt", "it's me")
    await page.click(f"[data-code={kind}]")
    shown = await page.text_content("#code")
    assert {"curl": "curl -N", "python": "OpenAI(", "grpcurl": "tokenwire.v1.ChatService/StreamChat"}[kind] in shown
    assert "me" in shown
    await picture(page, kind)


async def test_the_documents_open_offline(page: Any, cluster: Cluster) -> None:
    await page.goto(f"{cluster.base_url}/docs")
    await playwright.expect(page.locator("body")).to_contain_text("/v1/chat/completions")
    await picture(page, "docs")
