r_kept, r_status, r_head, r_body = 0, 0, 0, 0
