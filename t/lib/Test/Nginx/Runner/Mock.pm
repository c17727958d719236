package Test::Nginx::Runner::Mock;

# The server of "tcp_listen": accepts one connection, reads one query, sends
# one reply. Further connections are taken by the kernel and never answered.
#
# It runs in a process of its own and hands the query back through a pipe.

use strict;
use warnings;

use IO::Select ();
use IO::Socket::INET ();
use IO::Socket::UNIX ();
use POSIX ();
use Time::HiRes ();

use Exporter 'import';
use Test::More ();
use Test::Nginx::Util qw(bail_out expand_env_in_text full_name is_str
                         parse_time trim);

our @EXPORT_OK = qw(start_mock finish_mock stop_mock);

use constant QUERY_TIMEOUT => 0.1;

my ($child, $pipe);

sub start_mock {
    my $block = shift;
    my $address = $block->tcp_listen;

    return unless defined $address;

    $address = trim(expand_env_in_text($address, full_name($block)));

    my $server = listen_on($address)
        or bail_out(full_name($block) . " - cannot listen on $address: $!");

    pipe $pipe, my $write or bail_out("cannot make a pipe: $!");
    defined($child = fork) or bail_out("cannot fork: $!");

    if ($child == 0) {
        $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
        $SIG{PIPE} = 'IGNORE';
        close $pipe;

        eval { serve($block, $server, $write); 1 }
            or print STDERR "tcp_reply failed: $@";

        # neither END blocks nor buffers of the parent
        POSIX::_exit(0);
    }

    close $write;
}

sub listen_on {
    my $address = shift;

    if ($address !~ /^\d+$/) {
        unlink $address if -S $address;
        return IO::Socket::UNIX->new(Local => $address, Listen => 5);
    }

    return IO::Socket::INET->new(
        LocalAddr => '127.0.0.1', LocalPort => $address, Proto => 'tcp',
        Listen => 5, ReuseAddr => 1);
}


# ---- in the child ----

sub serve {
    my ($block, $server, $report) = @_;
    my $client = $server->accept or die "accept: $!\n";

    $client->autoflush(1);

    my $how = $block->tcp_shutdown;
    $client->shutdown(trim($how)) if defined $how;

    my $query = read_query($block, $client);

    print $report $query;
    close $report;

    my $delay = parse_time($block->tcp_reply_delay);
    Time::HiRes::sleep($delay) if $delay;

    my $reply = $block->tcp_reply;
    $reply = $reply->($query) if ref $reply eq 'CODE';

    for my $bytes (ref $reply eq 'ARRAY' ? @$reply : $reply) {
        print $client $bytes if defined $bytes;
    }

    close $client unless defined $block->tcp_no_close;

    # until the parent has had enough
    sleep 1 while getppid() != 1;
}

# Reads until the expected length is there, or else until the peer makes a
# pause.
sub read_query {
    my ($block, $client) = @_;
    my $length = query_length($block);
    my $pause = parse_time($block->tcp_query_auto_timeout) || QUERY_TIMEOUT;
    my $select = IO::Select->new($client);
    my $query = '';

    while (1) {
        last if defined $length && length $query >= $length;
        last if !defined $length && length $query
                && !$select->can_read($pause);

        my $got = sysread $client, $query, 65536, length $query;
        last unless $got;
        last if !defined $length && !defined $block->tcp_query_auto_timeout;
    }

    return $query;
}

sub query_length {
    my $block = shift;
    my $query = $block->tcp_query;

    return trim($block->tcp_query_len) if defined $block->tcp_query_len;
    return length $query if defined $query && !ref $query;
    return undef;
}


# ---- in the parent ----

# Ends the server and asserts what it has been asked.
sub finish_mock {
    my $block = shift;

    return unless $child;

    my $name = full_name($block);
    my $query = reported_query();

    stop_mock();

    is_str($query, $block->tcp_query, "$name - tcp_query ok")
        if defined $block->tcp_query;

    Test::More::is(length $query, trim($block->tcp_query_len),
                   "$name - TCP query length ok")
        if defined $block->tcp_query_len;
}

# What is there by now: a server which has not been asked says nothing.
sub reported_query {
    my $query = '';

    if (IO::Select->new($pipe)->can_read(QUERY_TIMEOUT)) {
        local $/;
        my $text = <$pipe>;
        $query = $text if defined $text;
    }

    close $pipe;
    return $query;
}

sub stop_mock {
    return unless $child;

    kill 'KILL', $child;
    waitpid $child, 0;
    undef $child;
}

1;
