"""Fingerprint64 of FarmHash: the hash of tf.strings.to_hash_bucket_fast."""

_MASK = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _rotate(value: int, places: int) -> int:
    value &= _MASK
    return (value >> places | value << (64 - places)) & _MASK


def _shift(value: int) -> int:
    value &= _MASK
    return value ^ value >> 47


def _hash16(a: int, b: int, factor: int) -> int:
    a = _shift((a ^ b) * factor)
    return _shift((b ^ a) * factor) * factor & _MASK


def _short(data: bytes) -> int:
    size, factor = len(data), _K2 + len(data) * 2
    if size >= 8:
        a, b = int.from_bytes(data[:8], "little") + _K2, int.from_bytes(data[-8:], "little")
        return _hash16((_rotate(b, 37) * factor + a) & _MASK, ((_rotate(a, 25) + b) * factor) & _MASK, factor)
    if size >= 4:
        a, b = int.from_bytes(data[:4], "little"), int.from_bytes(data[-4:], "little")
        return _hash16(size + (a << 3), b, factor)
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _shift(y * _K2 ^ z * _K0) * _K2 & _MASK
    return _K2


def fingerprint(data: bytes) -> int:
    size = len(data)
    if size <= 16:
        return _short(data)

    def word(at: int) -> int:
        return int.from_bytes(data[at : at + 8], "little")

    factor = _K2 + size * 2
    if size <= 32:
        a, b, c, d = word(0) * _K1, word(8), word(size - 8) * factor, word(size - 16) * _K2
        return _hash16(
            (_rotate(a + b, 43) + _rotate(c, 30) + d) & _MASK, (a + _rotate(b + _K2, 18) + c) & _MASK, factor
        )
    if size <= 64:
        a, b, c, d = word(0) * _K2, word(8), word(size - 8) * factor, word(size - 16) * _K2
        y = (_rotate(a + b, 43) + _rotate(c, 30) + d) & _MASK
        z = _hash16(y, (a + _rotate(b + _K2, 18) + c) & _MASK, factor)
        e, f = word(16) * factor, word(24)
        g, h = (y + word(size - 32)) * factor, (z + word(size - 24)) * factor
        return _hash16(
            (_rotate(e + f, 43) + _rotate(g, 30) + h) & _MASK, (e + _rotate(f + a, 18) + g) & _MASK, factor
        )

    def weak(at: int, a: int, b: int) -> tuple[int, int]:
        a = (a + word(at)) & _MASK
        b = _rotate(b + a + word(at + 24), 21)
        before = a
        a = (a + word(at + 8) + word(at + 16)) & _MASK
        return (a + word(at + 24)) & _MASK, (b + _rotate(a, 44) + before) & _MASK

    x, y = (81 * _K2 + word(0)) & _MASK, (81 * _K1 + 113) & _MASK
    z = _shift(y * _K2 + 113) * _K2 & _MASK
    v, w = (0, 0), (0, 0)

    def mixed(at: int, factor: int, times: int) -> None:
        nonlocal x, y, z, v, w
        x = _rotate(x + y + v[0] + word(at + 8), 37) * factor & _MASK
        y = _rotate(y + v[1] + word(at + 48), 42) * factor & _MASK
        x ^= w[1] * times & _MASK
        y = (y + v[0] * times + word(at + 40)) & _MASK
        z = _rotate(z + w[0], 33) * factor & _MASK
        v = weak(at, v[1] * factor, x + w[0])
        w = weak(at + 32, z + w[1], y + word(at + 16))
        z, x = x, z

    for at in range(0, (size - 1) // 64 * 64, 64):
        mixed(at, _K1, 1)
    factor = _K1 + ((z & 255) << 1)
    w = (w[0] + (size - 1) % 64, w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    mixed(size - 64, factor, 9)
    first = _hash16(v[0], w[0], factor) + _shift(y) * _K0 + z
    return _hash16(first & _MASK, (_hash16(v[1], w[1], factor) + x) & _MASK, factor)
