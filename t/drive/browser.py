"""Chromium without a window, by ChromeDriver's own protocol (W3C WebDriver).

    with Browser() as b:
        b.open('http://127.0.0.1:8080/')
        b.run('return document.title')
        b.look(390, 844, dark=True, scale=2); b.picture('phone.png')
"""

import atexit
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from shm import TOP, free_port

# only pages of the test's own are opened, so the sandbox, which root and
# many containers cannot have, is not needed; nothing is asked of the network
OPTIONS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic',
           '--disable-dev-shm-usage', '--no-first-run', '--disable-sync',
           '--disable-background-networking', '--disable-component-update',
           '--hide-scrollbars', '--force-color-profile=srgb']


def missing():
    """what is not there to run it, or None"""
    for program in ('chromedriver', 'chromium'):
        if shutil.which(program) is None:
            return program + ' is not installed'
    return None


class Browser:
    def __init__(self):
        os.makedirs(TOP + '/build', exist_ok=True)
        self.root = tempfile.mkdtemp(prefix='browser-', dir=TOP + '/build')
        port = free_port()
        self.url = 'http://127.0.0.1:%d' % port
        self.session = None
        with open(self.root + '/log', 'w') as log:
            self.process = subprocess.Popen(
                ['chromedriver', '--port=%d' % port], stdout=log, stderr=log,
                start_new_session=True)
        atexit.register(self.stop)
        self._until_ready()
        args = OPTIONS + ['--user-data-dir=' + self.root + '/profile']
        chrome = {'binary': shutil.which('chromium'), 'args': args}
        answer = self._ask('POST', '/session', {'capabilities': {
            'alwaysMatch': {'browserName': 'chrome',
                            'goog:loggingPrefs': {'browser': 'ALL'},
                            'goog:chromeOptions': chrome}}})
        self.session = '/session/' + answer['sessionId']

    def _until_ready(self):
        end = time.time() + 60
        while True:
            try:
                if self._ask('GET', '/status')['ready']:
                    return
            except OSError:
                if time.time() > end or self.process.poll() is not None:
                    raise
            time.sleep(0.05)

    def _ask(self, method, path, data=None):
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(
            self.url + path, body, {'Content-Type': 'application/json'},
            method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)['value']
        except urllib.error.HTTPError as e:
            raise RuntimeError(e.read().decode()) from None

    def open(self, url):
        self._ask('POST', self.session + '/url', {'url': url})

    def reload(self):
        """a form is sent again"""
        self._ask('POST', self.session + '/refresh', {})

    def run(self, script, *args):
        return self._ask('POST', self.session + '/execute/sync',
                         {'script': script, 'args': list(args)})

    def complaints(self):
        """what the browser's console says"""
        return [line['message'] for line in
                self._ask('POST', self.session + '/se/log',
                          {'type': 'browser'})]

    def _devtools(self, command, **params):
        return self._ask('POST', self.session + '/goog/cdp/execute',
                         {'cmd': command, 'params': params})

    def look(self, width, height, dark=False, scale=1):
        """a screen of that size, in pixels of CSS"""
        self._devtools('Emulation.setDeviceMetricsOverride', width=width,
                       height=height, deviceScaleFactor=scale,
                       mobile=width < 600)
        self._devtools('Emulation.setEmulatedMedia', features=[
            {'name': 'prefers-color-scheme',
             'value': 'dark' if dark else 'light'}])

    def picture(self, path):
        """the whole page, as far as it goes down"""
        answer = self._devtools('Page.captureScreenshot', format='png',
                                captureBeyondViewport=True)
        with open(path, 'wb') as f:
            f.write(base64.b64decode(answer['data']))

    def stop(self):
        atexit.unregister(self.stop)
        try:
            if self.session:
                self._ask('DELETE', self.session)
        except (OSError, RuntimeError):
            pass
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.stop()
