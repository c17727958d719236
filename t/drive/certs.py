"""Certificates for tests, made by openssl.

    certs = Certs(folder)
    certs.ca('ca')
    certs.certificate('server', 'ca', 'DNS:localhost,IP:127.0.0.1')
    certs.path('server.pem'), certs.redis('server')
"""

import subprocess


class Certs:
    def __init__(self, folder):
        self.folder = folder

    def path(self, name):
        return '%s/%s' % (self.folder, name)

    def openssl(self, *args):
        subprocess.run(['openssl', *args], cwd=self.folder, check=True,
                       capture_output=True)

    def ca(self, name):
        self.openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes',
                     '-days', '2', '-keyout', name + '.key',
                     '-out', name + '.pem', '-subj', '/CN=' + name)

    def certificate(self, name, by, names, days='2'):
        with open(self.path('ext'), 'w') as f:
            f.write('subjectAltName=%s\n' % names)
        self.openssl('req', '-newkey', 'rsa:2048', '-nodes',
                     '-keyout', name + '.key', '-out', name + '.csr',
                     '-subj', '/CN=' + name)
        self.openssl('x509', '-req', '-in', name + '.csr',
                     '-CA', by + '.pem', '-CAkey', by + '.key',
                     '-CAcreateserial', '-days', days,
                     '-extfile', 'ext', '-out', name + '.pem')

    def redis(self, name, by='ca'):
        """what a Redis with this certificate is started with"""
        return ('--tls-cert-file', self.path(name + '.pem'),
                '--tls-key-file', self.path(name + '.key'),
                '--tls-ca-cert-file', self.path(by + '.pem'))
