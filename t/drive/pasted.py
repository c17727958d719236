"""What pages and examples show, made to run here: with a folder, a port and an
upstream of its own, and not changed otherwise.

    for block in blocks('docs/start/keys.md'):
        block.kind, block.heading, block.text

frame() makes a whole configuration of one whose http{} is given, snippet()
of any piece of one.
"""

import itertools
import os
import re
import textwrap

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))

TEMP = ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi')

# directives by the block they belong in; all others, in a location
CONTEXT = {
    'main': {'load_module', 'http'},
    'http': {'server', 'upstream', 'map', 'log_format', 'resolver',
             'idempotency_store', 'idempotency_json_set',
             'idempotency_form_set'},
    'server': {'location', 'listen'},
}

SHELL = ('make', 'curl', 'printf', 'sudo', 'umask', 'cat', 'sort', 'timeout',
         'python3', 'nginx', 'redis-cli', 'systemctl', './configure', 'examples/', 't/',
         'promtool', 'prometheus', 'grep', 'sqlite3', 'apt-get', 'psql', '$ ')


class Block:
    def __init__(self, page, line, heading, text):
        self.page, self.line, self.heading = page, line, heading
        self.text = text
        self.name = '%s:%d' % (page, line)
        self.kind = self.find_kind()

    def find_kind(self):
        first = self.text.split('\n')[0]
        if first.startswith(('CREATE ', 'INSERT INTO ', 'SELECT ', '-- ')):
            return 'sql'
        if re.search(r'[;{]\s*(#.*)?$', first) or '\n' in self.text \
                and re.match(r"log_format|idempotency_\w+ .*[^,.]$", first):
            return 'nginx'
        if first.startswith(SHELL):
            return 'shell'
        if first.startswith('{'):
            return 'json'
        if first.startswith('scrape_configs:'):
            return 'prometheus'
        if first.startswith('idempotency '):
            return 'log'
        if re.match(r'[A-Z][\w-]*: ', first):
            return 'header'
        return 'text'


def blocks(page):
    """The indented blocks of a page; where one is a configuration and then
    something else, they are two.  Programs between ``` are run by
    t/clients/guide.py."""
    with open(TOP + '/' + page) as f:
        text = re.sub(r'^```.*?^```$', lambda m: '\n' * m.group().count('\n'),
                      f.read(), flags=re.M | re.S)
    lines = text.split('\n')
    found, heading, i = [], None, 0
    while i < len(lines):
        if lines[i].startswith('#'):
            heading = lines[i].lstrip('#').strip()
        begins = re.match(r'    +\S', lines[i]) and (
            i == 0 or not lines[i - 1].strip())
        if not begins:
            i += 1
            continue
        start = i
        while i < len(lines) and (not lines[i].strip()
                                  or lines[i].startswith('    ')):
            i += 1
        text = textwrap.dedent('\n'.join(lines[start:i]))
        found += pieces(page, start, heading, text.split('\n'))
    return found


def pieces(page, start, heading, lines):
    """paragraphs, those of one configuration together"""
    out, block, depth = [], [], 0
    for n, line in enumerate(lines + ['']):
        if block and not line.strip() and depth == 0:
            new = Block(page, first, heading, '\n'.join(block))
            if out and out[-1].kind == new.kind == 'nginx' \
                    and not out[-1].text.startswith(('http', 'load_')):
                out[-1].text += '\n\n' + new.text
            elif out and out[-1].text.startswith('load_'):
                out[-1].text += '\n\n' + new.text
            else:
                out.append(new)
            block = []
        elif block or line.strip():
            if not block:
                first = start + n + 1
            block.append(line)
            if not line.lstrip().startswith(('{', '"', "'", 'curl', '-')):
                code = line.partition('#')[0]
                depth += code.count('{') - code.count('}')
    return out


def statements(text):
    """the directives of a configuration, as (name, text)"""
    word = re.compile(r'''"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\#[^\n]*'''
                      r'''|[{};]|[^\s{};"'\#]+|\s+''')
    found, current, depth = [], '', 0
    for token in word.findall(text):
        if token.startswith('#'):
            continue
        current += token
        depth += (token == '{') - (token == '}')
        if depth == 0 and token in (';', '}'):
            current = current.strip()
            found.append((re.match(r'[\w.]+', current).group(), current))
            current = ''
    if current.strip():
        raise ValueError('not the end of a configuration: ' + current)
    return found


def frame(text, root, module, port=8080, up=9000, store=None, level='notice'):
    """All of a configuration whose http{} is this text."""
    text = text.replace('listen 8080;', 'listen 127.0.0.1:%d;' % port)
    text = text.replace('127.0.0.1:9000', '127.0.0.1:%d' % up)
    if store is not None:
        text = re.sub(r'^(\s*idempotency_store +\w+ +)[^\s;]+',
                      r'\g<1>' + store, text, flags=re.M)
    text = text.replace('http {\n', '''http {
    log_format what "$status $request_method $uri $idempotency_result";
    access_log %s/access.log what;
''' % root + ''.join(
        '    %s_temp_path %s/%s;\n' % (name, root, name) for name in TEMP), 1)
    return ('load_module %s;\n%serror_log %s/error.log %s;\n'
            'pid %s/nginx.pid;\nworker_processes 2;\nevents { }\n%s'
            % (module, 'user root;\n' if os.getuid() == 0 else '', root, level,
               root, text))


def snippet(text, root, module):
    """A configuration with this piece of one in the place that it needs."""
    parts = {'main': [], 'http': [], 'server': [], 'location': []}
    for name, code in statements(re.sub(r'^ *\.\.\. *$', '', text,
                                        flags=re.M)):
        for context, names in CONTEXT.items():
            if name in names:
                parts[context].append(code)
                break
        else:
            parts['location'].append(code)
    http = [code for code in parts['main'] if code.startswith('http')]
    if http:
        return frame(served(http[0], root), root, module)
    joined = '\n'.join(parts['http'])
    if not re.search(r'idempotency_store\s+pay\s', joined):
        parts['http'].append('idempotency_store pay shm:64k;')
    if not re.search(r'upstream\s+backend\s', joined):
        parts['http'].append('upstream backend { server 127.0.0.1:9000; }')
    own = '\n'.join(parts['location'])
    return frame(served('''http {
%s
server {
    idempotency_source $remote_addr;
    %s
    location /snippet {
        %s
        %s
        %s
    }
}
}
''' % ('\n'.join(parts['http']), '\n'.join(parts['server']),
            '' if re.search(r'^idempotency ', own, re.M) else
            'idempotency pay;', own,
            '' if 'proxy_pass ' in own else 'proxy_pass http://backend;'),
        root), root, module)


def served(text, root):
    """sockets instead of ports, which may be taken"""
    text = re.sub(r'\blisten\s[^;]*;', '', text)
    sockets = itertools.count()
    text = re.sub(r'\bserver\s*\{', lambda _: 'server { listen unix:%s/%d; '
                  % (root, next(sockets)), text)
    text = text.replace('http://backend', 'http://127.0.0.1:9000') \
        if 'upstream' not in text else text
    return secrets(text, root)


def secrets(text, root):
    """The text with its keys and users in this folder, where they are
    made."""
    for key in set(re.findall(r'/etc/nginx/idempotency/([\w.-]+)', text)):
        with open(os.open('%s/%s' % (root, key), os.O_WRONLY | os.O_CREAT,
                          0o600), 'wb') as f:
            f.write(b'secret\n' if key == 'password' else os.urandom(32))
    if '/etc/nginx/users' in text:
        with open(root + '/users', 'w') as f:
            f.write('alice:{PLAIN}secret\nbob:{PLAIN}secret\n')
    return text.replace('/etc/nginx/idempotency', root).replace(
        '/etc/nginx/users', root + '/users')
