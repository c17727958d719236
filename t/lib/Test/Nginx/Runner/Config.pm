package Test::Nginx::Runner::Config;

# The server root of a block: its directories, its files, its nginx.conf.

use strict;
use warnings;

use File::Basename ();
use File::Path ();
use POSIX ();
use Time::Local ();

use Exporter 'import';
use Test::Nginx::Util qw(bail_out expand_env_in_text full_name html_dir
                         server_port server_root trim);

our @EXPORT_OK = qw(prepare_server_root write_nginx_conf write_user_files);

# nginx clears its environment; these are let through as in Test::Nginx, and
# those which steer the sanitizers as well.
my @PASSED_ENVIRONMENT = qw(
    LD_PRELOAD LD_LIBRARY_PATH ASAN_OPTIONS UBSAN_OPTIONS LSAN_OPTIONS
);

sub prepare_server_root {
    my $root = server_root();

    if (-e $root) {
        refuse_foreign_directory($root);
        File::Path::remove_tree($root, { keep_root => 1 });
    }

    File::Path::make_path("$root/conf", "$root/logs", "$root/html");
    write_file("$root/html/index.html",
               '<html><head><title>It works!</title></head>'
               . '<body>It works!</body></html>');
}

# The directory is emptied before each block; a wrong TEST_NGINX_SERVROOT must
# not delete other files.
sub refuse_foreign_directory {
    my $root = shift;

    return if -d "$root/conf" && -d "$root/logs" && -d "$root/html";

    opendir my $dir, $root or bail_out("cannot read $root: $!");
    return unless grep { !/^\.\.?$/ } readdir $dir;

    bail_out("$root is not empty and not a server root of the tests");
}

sub write_file {
    my ($path, $content) = @_;

    open my $out, '>', $path or bail_out("cannot write $path: $!");
    binmode $out;
    print $out $content;
    close $out or bail_out("cannot write $path: $!");
}


# ---- user_files ----

sub write_user_files {
    my $block = shift;
    my $files = $block->user_files;

    return unless defined $files;

    for my $file (ref $files ? @$files : parse_user_files($block, $files)) {
        my ($name, $content, $date) = @$file;
        my $path = html_dir() . "/$name";

        File::Path::make_path(File::Basename::dirname($path));
        write_file($path, $content);

        next unless defined $date;

        my $time = touch_time($date);
        utime $time, $time, $path or bail_out("cannot touch $path: $!");
    }
}

sub parse_user_files {
    my ($block, $text) = @_;
    my @files;

    for my $line (split /^/, expand_env_in_text($text, full_name($block))) {
        if ($line =~ /^>>>\s+(\S+)(?:\s+(\S+))?\s*$/) {
            push @files, [ $1, '', $2 ];

        } elsif (@files) {
            $files[-1][1] .= $line;

        } elsif ($line =~ /\S/) {
            bail_out(full_name($block)
                     . " - user_files does not begin with \">>> name\"");
        }
    }

    return @files;
}

# The date format of touch -t: CCYYMMDDhhmm.ss
sub touch_time {
    my $date = shift;

    $date =~ /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d\d))?$/
        or bail_out("\"$date\" is not a date like 199801171935.33");

    return Time::Local::timelocal($6 || 0, $5, $4, $3, $2 - 1, $1);
}


# ---- nginx.conf ----

sub write_nginx_conf {
    my ($block, $config) = @_;
    my $path = server_root() . '/conf/nginx.conf';

    write_file($path, join "\n", main_part($block), http_part($block, $config),
               events_part($block));

    return $path;
}

sub section {
    my ($block, $name) = @_;
    my $text = $block->$name;

    return '' unless defined $text;
    return expand_env_in_text($text, full_name($block));
}

sub main_part {
    my $block = shift;
    my $root = server_root();
    my $level = trim($block->log_level) || Test::Nginx::Util::log_level();
    my $master = Test::Nginx::Util::master_process_enabled();
    my $error_log = trim($block->error_log_file) || "$root/logs/error.log";

    my @lines = map { "load_module $_;" }
        split ' ', $ENV{TEST_NGINX_LOAD_MODULES} || '';

    push @lines,
        'worker_processes ' . Test::Nginx::Util::workers() . ';',
        'daemon off;',
        "master_process $master;",
        "error_log $error_log $level;",
        "pid $root/logs/nginx.pid;";

    push @lines, user_directive();
    push @lines, map { "env $_;" } @PASSED_ENVIRONMENT;
    push @lines, map { /\s/ ? "env '$_';" : "env $_;" }
        @{ Test::Nginx::Util::setting('environment') };

    return @lines, section($block, 'main_config');
}

sub user_directive {
    return if POSIX::geteuid() != 0;
    return 'user ' . ($ENV{TEST_NGINX_WORKER_USER} || 'root') . ';';
}

sub http_part {
    my ($block, $config) = @_;
    my $root = server_root();
    my $port = server_port();
    my $name = trim($block->server_name) || Test::Nginx::Util::server_name();
    my $postpone = $ENV{TEST_NGINX_POSTPONE_OUTPUT};

    my @lines = (
        'http {',
        "access_log $root/logs/access.log;",
        (map { "${_}_temp_path $root/${_}_temp;" }
             qw(client_body proxy fastcgi scgi uwsgi)),
        'default_type text/plain;',
        'keepalive_timeout 68s;',
    );

    push @lines, "postpone_output $postpone;" if $postpone;
    push @lines, section($block, 'http_config');

    push @lines,
        'server {',
        "listen $port" . ($ENV{TEST_NGINX_REUSE_PORT} ? ' reuseport;' : ';'),
        "server_name '$name';",
        'client_max_body_size 30M;',
        Test::Nginx::Util::config_preamble(),
        expand_env_in_text($config, full_name($block));

    push @lines, "location / { root $root/html; index index.html index.htm; }"
        if Test::Nginx::Util::setting('root_location');

    return @lines, '}', '}', section($block, 'post_main_config');
}

sub events_part {
    my $block = shift;
    my $connections = trim($block->worker_connections)
                      || Test::Nginx::Util::worker_connections();
    my $type = $ENV{TEST_NGINX_EVENT_TYPE};

    return (
        'events {',
        'accept_mutex off;',
        "worker_connections $connections;",
        ($type ? "use $type;" : ()),
        '}', '',
    );
}

1;
