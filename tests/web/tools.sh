# An agent that uses tools: arguments that arrive in pieces, a call without an id, results of every shape, a picture.
IFS= read -r asked
say() { printf '{"event":"%s","payload":%s}\n' "$1" "$2"; }

say reasoning '{"text":"What do they want? "}'
say token '{"text":"I look and draw. "}'
say tool_delta '{"tool_call_id":"t1","name":"look","arguments_delta":"{\"where\":"}'
say tool_delta '{"tool_call_id":"t1","arguments_delta":"\"sea\"}"}'
say tool '{"tool_call_id":"t1","name":"look","args":{"where":"sea","deep":{"n":[1,2.50,"x"]},"e":5,"f":6},"preview":"sea"}'
say tool '{"name":"draw","args":{"what":"waves"}}'
say tool '{"name":"draw","args":{"what":"wind"}}'
say tool_complete '{"name":"draw","result":"waves drawn"}'
say tool_complete '{"name":"draw","result":"no ink","is_error":true}'
say tool_complete '{"tool_call_id":"t1","name":"look","result":{"waves":[1,null],"text":"two\nlines"},"preview":"2 waves"}'
say file '{"media_type":"image/png","url":"https://example.com/sea.png"}'
say source '{"id":"s1","url":"https://example.com/sea","title":"The sea"}'
say source '{"id":"s2","media_type":"application/pdf","title":"Waves","filename":"waves.pdf"}'
say data '{"name":"chart","id":"c1","data":{"points":[1]}}'
say data '{"name":"chart","id":"c1","data":{"points":[1,2]}}'
say metadata '{"mood":{"calm":true}}'
say usage '{"input_tokens":7,"output_tokens":5,"model":"tools-1"}'
say token '{"text":"The sea is calm."}'
