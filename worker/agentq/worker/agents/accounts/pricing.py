"""The cost of an agent that does not report it."""

from __future__ import annotations

from collections.abc import Mapping

_MILLION = 1_000_000


def find_price(prices: Mapping[str, Mapping[str, float]], model: str | None) -> Mapping[str, float] | None:
    """The price of a model: by its name, or the longest prefix of it; with or without its vendor's."""
    if not model:
        return None
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        known = [each for each in prices if each and name.startswith(each)]
        if known:
            return prices[max(known, key=len)]
    return None


def compute_cost(
    prices: Mapping[str, Mapping[str, float]], model: str | None, input_tokens: int, cached: int, output: int
) -> float | None:
    """Dollars; None without a known price. Cached tokens are among the input tokens."""
    price = find_price(prices, model)
    if price is None or "input" not in price or "output" not in price:
        return None
    cached = min(cached, input_tokens)
    read = (input_tokens - cached) * price["input"] + cached * price.get("cached", price["input"])
    return (read + output * price["output"]) / _MILLION
