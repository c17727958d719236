"""As much of HPACK (RFC 7541) as nginx writes: no dynamic table.

    decode(block) -> [(name, value), ...]
"""

# the static table, appendix A, without the values that nginx does not use
STATIC = (
    ':authority', ':method GET', ':method POST', ':path /',
    ':path /index.html', ':scheme http', ':scheme https', ':status 200',
    ':status 204', ':status 206', ':status 304', ':status 400',
    ':status 404', ':status 500', 'accept-charset', 'accept-encoding',
    'accept-language', 'accept-ranges', 'accept',
    'access-control-allow-origin', 'age', 'allow', 'authorization',
    'cache-control', 'content-disposition', 'content-encoding',
    'content-language', 'content-length', 'content-location',
    'content-range', 'content-type', 'cookie', 'date', 'etag', 'expect',
    'expires', 'from', 'host', 'if-match', 'if-modified-since',
    'if-none-match', 'if-range', 'if-unmodified-since', 'last-modified',
    'link', 'location', 'max-forwards', 'proxy-authenticate',
    'proxy-authorization', 'range', 'referer', 'refresh', 'retry-after',
    'server', 'set-cookie', 'strict-transport-security',
    'transfer-encoding', 'user-agent', 'vary', 'via', 'www-authenticate')

# Lengths of the Huffman codes, appendix B, of what a text is made of.  The
# code is canonical: lengths tell all of it, and no other symbol has a code
# of 15 bits or less, but for 0, which has 13.
LENGTHS = {
    5: '012aceiost', 6: ' %-./3456789=A_bdfghlmnpru',
    7: ':BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz', 8: '&*,;XZ', 10: '!"()?',
    11: "'+|", 12: '#>', 13: '\0$@[]~', 14: '^}', 15: '<`{'}


def codes():
    found, code, before = {}, 0, 5
    for bits, symbols in LENGTHS.items():
        code <<= bits - before
        before = bits
        for symbol in symbols:
            found[bits, code] = symbol
            code += 1
    return found


CODES = codes()


def huffman(data):
    out, code, bits = [], 0, 0
    for byte in data:
        for i in range(7, -1, -1):
            code, bits = code << 1 | byte >> i & 1, bits + 1
            if (bits, code) in CODES:
                out.append(CODES[bits, code])
                code = bits = 0
    return ''.join(out)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def integer(self, bits):
        top = (1 << bits) - 1
        n = self.data[self.at] & top
        self.at += 1
        shift = 0
        while n >= top:
            byte = self.data[self.at]
            self.at += 1
            n += (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return n

    def string(self):
        packed = self.data[self.at] & 128
        size = self.integer(7)
        text = self.data[self.at:self.at + size]
        self.at += size
        return huffman(text) if packed else text.decode('latin-1')


def decode(block):
    reader, fields = Reader(block), []
    while reader.at < len(block):
        first = block[reader.at]
        if first & 128:
            name, _, value = STATIC[reader.integer(7) - 1].partition(' ')
            fields.append((name, value))
            continue
        if first & 0xe0 == 0x20:          # a new size of the table
            reader.integer(5)
            continue
        index = reader.integer(6 if first & 64 else 4)
        name = STATIC[index - 1].partition(' ')[0] if index \
            else reader.string()
        fields.append((name, reader.string()))
    return fields
