r_state, r_kept, r_status = DONE, kept, status
r_lease, r_until, r_tombstone = now, now + ttl * 1000, tombstone
rest = ARGV[2]
r_head, r_body = head, #rest - head
