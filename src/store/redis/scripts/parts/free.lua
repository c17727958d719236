-- Free, but the record stays and refuses its last owner.  Scripts of older
-- gateways do not know r_fp_how and keep it when they claim the key: it must
-- be 0, or it would describe a fingerprint that they have replaced.

--include drop_answer
r_state, r_issued, r_fp_how, r_note = NONE, 0, 0, ''
