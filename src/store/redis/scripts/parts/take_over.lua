-- This owner claims a record that is free, issued or unknown.

--include drop_answer
--include ban WHOM=r_owner
r_state, r_owner, r_fp, r_fp_how = EXECUTING, owner, fp, fp_how
r_lease, r_keep, r_attempts = now + lease, keep, r_attempts + 1
r_note = note
