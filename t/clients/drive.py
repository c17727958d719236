"""requests, urllib3 or curl sends a request to each of the URLs on standard
input, all at once, with retries for POST.

    python3 drive.py requests|urllib3|curl [OPTION ...] < cells.json

Prints "ready" when it can begin, then a line for each: {"fault", "status", "body"} or {"fault", "error"}.
"""

import json
import subprocess
import sys
import tempfile
import threading

RETRIES = 5
TIMEOUT = 10
BODY = json.dumps({'amount': 1999, 'currency': 'EUR', 'order': 'A-17'})


def retry():
    from urllib3.util.retry import Retry
    return Retry(total=RETRIES, backoff_factor=0.3, allowed_methods={'POST'},
                 status_forcelist=[429, 502, 503, 504], raise_on_status=False)


def by_requests(cell, headers):
    import requests
    from requests.adapters import HTTPAdapter
    session = requests.Session()
    session.mount('http://', HTTPAdapter(max_retries=retry()))
    if cell['kept']:
        session.get(cell['url'], timeout=TIMEOUT)
    r = session.post(cell['url'] + '/payments', data=BODY, headers=headers,
                     timeout=TIMEOUT)
    return {'status': r.status_code, 'body': r.text}


def by_urllib3(cell, headers):
    import urllib3
    pool = urllib3.PoolManager(retries=retry(), timeout=TIMEOUT)
    if cell['kept']:
        pool.request('GET', cell['url'])
    r = pool.request('POST', cell['url'] + '/payments', body=BODY,
                     headers=headers)
    return {'status': r.status, 'body': r.data.decode()}


def by_curl(cell, headers):
    common = ['-sS', '-m', str(TIMEOUT), *sys.argv[2:]]
    # two transfers of one command share a connection
    first = [*common, '-o', '/dev/null', cell['url'], '--next'] \
        if cell['kept'] else []
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(
            ['curl', *first, *common, '-o', out.name, '-w', '%{http_code}',
             '-d', BODY, cell['url'] + '/payments',
             *[word for item in headers.items()
               for word in ('-H', '%s: %s' % item)]],
            capture_output=True, text=True)
        body = out.read().decode()
    said = {'status': int(done.stdout[-3:] or 0)}
    if done.returncode:
        return dict(said, error=done.stderr.strip().split('\n')[-1])
    return dict(said, body=body)


def send(cell):
    by = {'requests': by_requests, 'urllib3': by_urllib3, 'curl': by_curl}
    try:
        said = by[sys.argv[1]](cell, {'Idempotency-Key': cell['key'],
                                      'Content-Type': 'application/json'})
    except Exception as e:
        said = {'error': '%s: %s' % (type(e).__name__, str(e)[:200])}
    sys.stdout.write(json.dumps(dict(said, fault=cell['fault'])) + '\n')
    sys.stdout.flush()


if sys.argv[1] != 'curl':
    __import__(sys.argv[1])
print('ready', flush=True)
threads = [threading.Thread(target=send, args=(cell,))
           for cell in json.load(sys.stdin)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
