-- release

--include read
--include decode
--include release
--include reply
