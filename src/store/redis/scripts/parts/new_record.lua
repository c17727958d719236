-- A record as this owner would have claimed it.

found, FIELDS =
  true, EXECUTING, 0, 0, 0, fp_how, owner, fp, fence > 0 and fence or now_us,
  now + lease, 0, time[1], 1, keep, 0, 0, 0, 0
r_note = note
