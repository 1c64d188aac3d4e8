# An agent: it reads what it is asked, thinks, calls a tool, and answers, a word at a time.
IFS= read -r asked
say() { printf '{"event":"%s","payload":%s}\n' "$1" "$2"; }
pause() { sleep 0.02; }

say reasoning '{"text":"Somebody asks me. "}'; pause
for word in One two three four five six seven eight nine ten; do
  say token "{\"text\":\"$word \"}"; pause
done
say tool '{"tool_call_id":"c1","name":"look","args":{"where":"out of the window"}}'; pause; pause
say tool_complete '{"tool_call_id":"c1","name":"look","output":"rain"}'
for word in It rains on every one of the hills today; do
  say token "{\"text\":\"$word \"}"; pause
done
say token '{"text":"– fin."}'
