"""The counter-based generator against published vectors, itself, and distributions."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from host_kernels import compile_host
from hypothesis import given
from hypothesis import strategies as st

from stride.utils import counter_rng
from stride.utils.counter_rng import Key

KEYS = [Key(0, 1), Key(1, 2, 3, 4), Key(2**63 - 1, 7, 2**31, 2**32 - 1), Key(0x9E3779B97F4A7C15 >> 1, 3, 1, 10**6)]


ANSWERS = [  # counter, key and words that Random123 has published
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip
WORD = st.integers(0, 2**32 - 1)
DRAWN_KEYS = st.builds(Key, st.integers(0, 2**63 - 1), WORD, WORD, WORD)
SIZES = st.sampled_from([1, 3, 4, 5, 6, 100, 1026])


@pytest.mark.parametrize(("counter", "key", "expected"), ANSWERS)
def test_philox_gives_the_known_answers_of_random123(counter, key, expected):
    assert tuple(int(word) for word in counter_rng.philox(*counter, *key)) == expected


@given(DRAWN_KEYS, SIZES)
def test_numba_torch_and_the_documented_layout_agree_bit_for_bit(key, n):
    low, high = key.seed & 0xFFFFFFFF, key.seed >> 32
    blocks = [counter_rng.philox(k, key.iteration, key.purpose, key.rank, low, high) for k in range(n // 4 + 1)]
    words = [int(word) for block in blocks for word in block][:n]
    assert counter_rng.words_numpy(key, n).tolist() == words == counter_rng.words_torch(key, n, "cpu").tolist()
    uniforms = counter_rng.uniforms(key, (n,))
    assert torch.equal(uniforms, counter_rng.uniforms_torch(key, n, "cpu"))
    assert uniforms.tolist() == [(word >> 8) * 2.0**-24 for word in words]
    assert torch.equal(counter_rng.uniforms(key, (8, 17)).flatten()[:n], uniforms[:136]), "a longer table begins so"
    assert counter_rng.integers(key, 3, 2**31) == counter_rng.integers(key, 9, 2**31)[:3]
    order = counter_rng.permutation(key, n)
    assert order.dtype == torch.int64 and order.tolist() == np.argsort(words, kind="stable").tolist()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("n", [1, 3, 4, 5, 1026])
def test_kernels_agree_bit_for_bit(key, n):
    """What a GPU runs, compiled for this processor; threads come in blocks, so most of the last ones have no work."""
    words, drawn = torch.full((2, n + 4), -1, dtype=torch.int64), torch.full((2, n + 4), -1.0)
    counted = key._replace(iteration=torch.tensor(key.iteration))
    for row, given_key in enumerate((key, counted)):
        counter_rng.launch("draw_words", given_key, words[row, :n], compile_host)
        counter_rng.launch("draw_uniforms", given_key, drawn[row, :n], compile_host)
    assert torch.equal(words[:, :n], counter_rng.words_torch(key, n, "cpu").expand(2, n))
    assert torch.equal(drawn[:, :n], counter_rng.uniforms(key, (n,)).expand(2, n))
    assert (words[:, n:] == -1).all() and (drawn[:, n:] == -1).all()


@pytest.mark.parametrize("key", KEYS)
def test_an_iteration_may_be_counted_on_the_device(key):
    """A number in a tensor is the number, also as it is changed in place."""
    counter = torch.tensor(0)
    counted = key._replace(iteration=counter)
    for iteration in (key.iteration, 5, 2**33 + 1):
        counter.fill_(iteration)
        plain = key._replace(iteration=iteration)
        assert torch.equal(counter_rng.uniforms(counted, (3, 7)), counter_rng.uniforms(plain, (3, 7)))
        assert torch.equal(counter_rng.permutation(counted, 41), counter_rng.permutation(plain, 41))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("key", KEYS)
def test_cuda_agrees_bit_for_bit(key):
    assert torch.equal(counter_rng.uniforms(key, (3, 341), "cuda").cpu(), counter_rng.uniforms(key, (3, 341)))
    assert torch.equal(counter_rng.permutation(key, 1023, "cuda").cpu(), counter_rng.permutation(key, 1023))


def test_fill_writes_in_place_and_refuses_what_it_would_scramble():
    out = torch.full((3, 5), -1.0)
    assert counter_rng.fill_uniforms(Key(1, 1), out) is out
    assert torch.equal(out, counter_rng.uniforms(Key(1, 1), (3, 5)))
    for wrong in (torch.zeros(4, 4).t(), torch.zeros(4, dtype=torch.float64)):
        with pytest.raises(ValueError, match="contiguous float32"):
            counter_rng.fill_uniforms(Key(1, 1), wrong)
    with pytest.raises(ValueError, match="seed"):
        counter_rng.uniforms(Key(-1, 1), (1,))


def test_normal_is_the_inverse_distribution_function():
    u = torch.cat((torch.arange(0, 2**24, 2**24 // 997), torch.arange(40), 2**24 - 1 - torch.arange(40))) * 2.0**-24
    z = counter_rng.normal(u)
    expected = [NormalDist().inv_cdf(float(x) + 2.0**-25) for x in u.tolist()]
    assert z.dtype == torch.float32
    assert (z.double() - torch.tensor(expected, dtype=torch.float64)).abs().max() < 2e-6
    ends = counter_rng.normal(torch.tensor([0.0, 1 - 2.0**-24]))
    assert ends.isfinite().all() and float(ends.sum()) == 0.0  # symmetric ends


def test_integers_cover_their_range():
    assert set(counter_rng.integers(Key(4, 4), 200, 5)) == {0, 1, 2, 3, 4}
    assert max(counter_rng.integers(Key(4, 4), 1000, 2**32)) > 2**31
    with pytest.raises(ValueError, match="high"):
        counter_rng.integers(Key(4, 4), 1, 0)


@pytest.mark.parametrize("millions", [2, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.soak])])
def test_millions_of_draws_are_even_and_follow_nothing(millions):
    """Chi-square over 4,096 cells, serial correlation at lags 1 to 8 and between neighbouring seeds; |z| < 5."""
    cells, lags, between, before, count = np.zeros(4096), np.zeros(8), 0.0, None, 0
    for i in range(millions):  # the keys' numbers differ by one
        draws = counter_rng.uniforms(Key(i % 10, counter_rng.ACT, 0, i // 10), (1_000_000,)).numpy()
        cells += np.bincount((draws * 4096).astype(np.int64), minlength=4096)
        centred = (draws - 0.5).astype(np.float64) * 12**0.5
        lags += [centred[: -k - 1] @ centred[k + 1 :] for k in range(8)]
        between += 0.0 if before is None else before @ centred
        before, count = centred, count + len(draws)
    expected = count / 4096
    chi_square = ((cells - expected) ** 2 / expected).sum()
    assert abs(chi_square - 4095) / (2 * 4095) ** 0.5 < 5
    assert np.abs(lags / count**0.5).max() < 5
    assert abs(between / count**0.5) < 5
