package Test::Nginx::Runner::Client;

# The HTTP client: writes packets, reads until the server closes, and takes
# the bytes it got apart. It never asserts anything itself.

use strict;
use warnings;

use Errno ();
use IO::Select ();
use IO::Socket::INET ();
use Time::HiRes ();

use Exporter 'import';
use Test::Nginx::Util qw(server_port_for_client);
use Test::Nginx::Runner::Process qw(nginx_is_running);

our @EXPORT_OK = qw(exchange parse_responses header_value);

use constant {
    READ_SIZE       => 65536,
    CONNECT_RETRIES => 20,
    CONNECT_PAUSE   => 0.1,
};


# ---- the connection ----

# Returns { bytes, timed_out, error }.
sub exchange {
    my ($exchange, %option) = @_;
    my ($socket, $error) = connect_to($option{address});

    return { bytes => '', error => $error } unless $socket;

    local $SIG{PIPE} = 'IGNORE';
    $socket->blocking(0);

    my $result = { bytes => '' };
    my @queue = map { { %$_ } } @{ $exchange->{packets} };

    while (my $event = next_event($socket, \@queue, $option{timeout})) {
        if ($event eq 'timeout') {
            $result->{timed_out} = 1;
            last;
        }

        if ($event eq 'write') {
            write_some($socket, \@queue);
            shutdown $socket, $option{shutdown}
                if !@queue && defined $option{shutdown};
            next;
        }

        last unless read_some($socket, $result);
    }

    close $socket;
    return $result;
}

sub connect_to {
    my $address = shift;
    my $port = server_port_for_client();
    my $error;

    for my $try (1 .. CONNECT_RETRIES) {
        my $socket = IO::Socket::INET->new(
            PeerAddr => $address, PeerPort => $port, Proto => 'tcp');

        return $socket if $socket;

        $error = $!;
        last if !nginx_is_running();
        Time::HiRes::sleep(CONNECT_PAUSE);
    }

    return (undef, "Can't connect to $address:$port: $error");
}

# "read", "write" or "timeout". Reading goes on while a packet waits for its
# time, since nginx may answer before it has seen the whole request.
sub next_event {
    my ($socket, $queue, $timeout) = @_;
    my $select = IO::Select->new($socket);

    if (@$queue && $queue->[0]{delay}) {
        my $due = $queue->[0]{due} ||= Time::HiRes::time()
                                       + $queue->[0]{delay};
        my $left = $due - Time::HiRes::time();

        return 'read' if $left > 0 && $select->can_read($left);
        $queue->[0]{delay} = 0;
    }

    my ($read, $write) = IO::Select->select(
        $select, @$queue ? $select : undef, undef, $timeout);

    return 'write' if $write && @$write;
    return 'read' if $read && @$read;
    return 'timeout';
}

sub write_some {
    my ($socket, $queue) = @_;
    my $packet = $queue->[0];
    my $written = length $packet->{bytes}
                  ? syswrite($socket, $packet->{bytes}) : 0;

    if (!defined $written) {
        return if $!{EAGAIN} || $!{EINTR};

        # the server does not want the rest; its answer may still be there
        @$queue = ();
        return;
    }

    substr $packet->{bytes}, 0, $written, '';
    shift @$queue unless length $packet->{bytes};
}

sub read_some {
    my ($socket, $result) = @_;
    my $got = sysread $socket, $result->{bytes}, READ_SIZE,
                      length $result->{bytes};

    return 1 if $got;
    return 1 if !defined $got && ($!{EAGAIN} || $!{EINTR});
    return 0;
}


# ---- the response ----

# One response for each method, each with code, head (the raw header), headers,
# body, and perhaps broken (the chunked encoding is) or note (a warning).
sub parse_responses {
    my ($bytes, @methods) = @_;
    my @responses;

    while (defined(my $method = shift @methods)) {
        my $response = parse_head(\$bytes);

        $response->{method} = $method;
        parse_body($response, \$bytes, @methods > 0);

        if ($response->{broken}) {
            $response->{code} = '';
            $response->{body} = undef;
        }

        push @responses, $response;
    }

    return @responses;
}

# A response may be cut short anywhere: what is there of the header counts.
sub parse_head {
    my $bytes = shift;
    my ($code) = $$bytes =~ m{^HTTP/\d+\.\d+ (\d+)};
    my $response = { code => defined $code ? $code : '', headers => [],
                     head => '', body => '' };

    $response->{head} = $$bytes =~ s/^(.*?\r?\n)\r?\n//s ? $1 : $$bytes;
    $$bytes = '' if $response->{head} eq $$bytes;

    my ($status, @lines) = split /\r?\n/, $response->{head};

    for my $line (@lines) {
        my ($name, $value) = $line =~ /^([^:\s]+)\s*: ?(.*)$/ or next;
        push @{ $response->{headers} }, [ $name, $value ];
    }

    return $response;
}

sub parse_body {
    my ($response, $bytes, $more_to_come) = @_;
    my $encoding = header_value($response, 'Transfer-Encoding');
    my $length = header_value($response, 'Content-Length');

    if (has_no_body($response)) {
        # bytes which should not be there are shown to the test
        ($response->{body}, $$bytes) = ($$bytes, '') unless $more_to_come;
        return;
    }

    if (defined $encoding && $encoding =~ /\bchunked\b/i) {
        decode_chunked($response, $bytes);
        return if $response->{broken};

    } elsif (defined $length && $length =~ /^\d+$/) {
        $response->{body} = substr $$bytes, 0, $length, '';
        $response->{note} = "the body has " . length($response->{body})
                            . " bytes of $length"
            if length $response->{body} < $length;

    } else {
        ($response->{body}, $$bytes) = ($$bytes, '');
    }

    $response->{note} = length($$bytes) . " bytes follow the response"
        if length $$bytes && !$more_to_come;
}

sub has_no_body {
    my $response = shift;

    return $response->{method} eq 'HEAD'
           || $response->{code} =~ /^(?:1\d\d|204|304)$/;
}

# Sets "broken" when the encoding is not complete and correct. Neither chunk
# extensions nor trailers are accepted; nginx sends none.
sub decode_chunked {
    my ($response, $bytes) = @_;

    while ($$bytes =~ s/^([0-9a-fA-F]+)\r\n//) {
        my $size = hex $1;

        if (length $$bytes < $size) {
            $response->{broken} = 'it ends within a chunk';
            return;
        }

        $response->{body} .= substr $$bytes, 0, $size, '';

        if ($$bytes !~ s/^\r\n//) {
            $response->{broken} = 'a chunk has no CRLF at its end';
            return;
        }

        return if $size == 0;
    }

    $response->{broken} = length $$bytes ? 'a chunk size was expected'
                                         : 'there is no last chunk';
}

# All values of a header in one string, undef when there is none.
sub header_value {
    my ($response, $name) = @_;
    my @values = map { $_->[1] }
        grep { lc $_->[0] eq lc $name } @{ $response->{headers} };

    return @values ? join(', ', @values) : undef;
}

1;
