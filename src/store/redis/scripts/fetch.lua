-- fetch

--include read
--include decode

result, with_answer = OK, flags < FETCH_BARE

--include reply
