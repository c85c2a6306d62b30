# Fails where a page is not finished.
unfinished=$(grep -rln TODO pages 2>/dev/null)
[ -z "$unfinished" ] || { echo "not finished: $unfinished"; exit 1; }
echo "all pages are finished"
