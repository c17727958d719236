package Test::Nginx::Runner::Request;

# From the sections of a block to the bytes which go over the wire.
#
# An exchange is { packets => [ { bytes, delay } ... ], methods => [ ... ] }:
# what is written to one connection, and the methods of the responses which
# are to come back on it.

use strict;
use warnings;

use Exporter 'import';
use Test::Nginx::Util qw(bail_out full_name parse_time trim);

our @EXPORT_OK = qw(exchanges_of);

sub exchanges_of {
    my $block = shift;

    return raw_exchange($block) if defined $block->raw_request;
    return pipelined_exchange($block) if defined $block->pipelined_requests;
    return simple_exchanges($block);
}


# ---- the three kinds ----

sub raw_exchange {
    my $block = shift;
    my $raw = $block->raw_request;
    my $delay = parse_time($block->raw_request_middle_delay) || 0;
    my @packets;

    for my $bytes (ref $raw eq 'ARRAY' ? @$raw : $raw) {
        push @packets, { bytes => $bytes, delay => @packets ? $delay : 0 };
    }

    my ($method) = $packets[0]{bytes} =~ /^\s*(\S+)/;

    return { packets => \@packets, methods => [ $method ] };
}

sub pipelined_exchange {
    my $block = shift;
    my $requests = $block->pipelined_requests;

    bail_out(full_name($block)
             . " - pipelined_requests must be an array of requests")
        unless ref $requests eq 'ARRAY' && @$requests;

    my ($bytes, @methods) = ('');

    for my $i (0 .. $#$requests) {
        my $connection = $i == $#$requests ? 'close' : 'keep-alive';
        my $request = parse_request($block, $requests->[$i]);

        $bytes .= join '', head_of($block, $request, $i, $connection),
                       map { $_->{bytes} } @{ $request->{body} };
        push @methods, $request->{method};
    }

    return { packets => [ { bytes => $bytes, delay => 0 } ],
             methods => \@methods };
}

sub simple_exchanges {
    my $block = shift;
    my $requests = $block->request;
    my @exchanges;

    $requests = [ $requests ] unless ref $requests eq 'ARRAY';

    for my $i (0 .. $#$requests) {
        my $request = parse_request($block, $requests->[$i]);
        my ($first, @rest) = @{ $request->{body} };

        $first ||= { bytes => '', delay => 0 };
        $first->{bytes} = head_of($block, $request, $i, 'close')
                          . $first->{bytes};

        push @exchanges, { packets => [ $first, @rest ],
                           methods => [ $request->{method} ] };
    }

    return @exchanges;
}


# ---- one request ----

# { method, uri, version, body => packets }
sub parse_request {
    my ($block, $source) = @_;
    my $name = full_name($block);
    my @packets = map { packet_of($block, $_) }
        ref $source eq 'ARRAY' ? @$source : $source;

    # comments and empty lines may precede the request line
    $packets[0]{bytes} =~ s/^(?:[ \t]*(?:\#[^\n]*)?\r?\n)+//;

    my ($line, $body) = split /\r?\n/, $packets[0]{bytes}, 2;
    $line = trim($line);

    bail_out("$name - there is no request line")
        unless defined $line && length $line;

    $line =~ /^(\S+)(?:\s+(\S+)(?:\s+(\S+))?)?$/
        or bail_out("$name - \"$line\" is no request line, which would be"
                    . " METHOD [uri [version]]");

    my $request = { method => $1, uri => defined $2 ? $2 : '/',
                    version => defined $3 ? $3 : 'HTTP/1.1' };

    $packets[0]{bytes} = defined $body ? $body : '';
    $request->{body} = \@packets;

    return $request;
}

sub packet_of {
    my ($block, $source) = @_;

    return { bytes => $source, delay => 0 }
        if defined $source && !ref $source;

    return { bytes => $source->{value}, delay => $source->{delay_before} || 0 }
        if ref $source eq 'HASH' && defined $source->{value};

    bail_out(full_name($block) . " - there is no request")
        unless defined $source;
    bail_out(full_name($block) . " - a packet must be a string or "
             . "{ value => ..., delay_before => ... }");
}

# The request line and the header; settles the body on the way, since whether
# it is trimmed depends on the header.
sub head_of {
    my ($block, $request, $index, $connection) = @_;
    my $headers = more_headers($block, $index);
    my $chunked = $headers =~ /^Transfer-Encoding:\s*chunked/mi;

    my $length = $chunked ? 0 : trim_body($request->{body});

    my $head = "$request->{method} $request->{uri} $request->{version}\r\n";

    $head .= "Host: localhost\r\n" unless $headers =~ /^Host:/mi;
    $head .= "Connection: $connection\r\n"
        unless $headers =~ /^Connection:/mi;
    $head .= $headers;
    $head .= "Content-Length: $length\r\n"
        if $length && $headers !~ /^Content-Length:/m;

    return "$head\r\n";
}

# White space at both ends of the body is dropped, packets keep their length
# as far as there are bytes left for them. Returns the length of the body.
sub trim_body {
    my $packets = shift;
    my $body = trim(join '', map { $_->{bytes} } @$packets);
    my $length = length $body;

    for my $packet (@$packets) {
        $packet->{bytes} = substr $body, 0, length($packet->{bytes}), '';
    }

    $packets->[-1]{bytes} .= $body;
    return $length;
}

sub more_headers {
    my ($block, $index) = @_;
    my $headers = $block->more_headers;

    if (ref $headers eq 'ARRAY') {
        bail_out(full_name($block)
                 . " - more_headers has nothing for request $index")
            if $index > $#$headers;
        $headers = $headers->[$index];
    }

    return '' unless defined $headers;

    my $text = '';

    for my $line (split /\n/, $headers) {
        next unless $line =~ /\S/;

        my ($name, $value) = split /:\s*/, $line, 2;
        $text .= "$name: " . (defined $value ? $value : '') . "\r\n";
    }

    return $text;
}

1;
