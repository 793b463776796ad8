# The client greenstalk, with a server on the port of the argument.
import sys, threading, greenstalk
address = ('127.0.0.1', int(sys.argv[1]))
with greenstalk.Client(address, use='emails', watch=['emails', 'other']) as client:
    first = client.put('hello', priority=5, delay=0, ttr=60)
    assert client.using() == 'emails' and sorted(client.watching()) == ['emails', 'other']
    job = client.reserve(timeout=1)
    assert (job.id, job.body) == (first, 'hello')
    client.touch(job)
    client.release(job, priority=7, delay=1)
    assert client.stats_job(job)['state'] == 'delayed' and client.stats_job(job)['pri'] == 7
    assert client.peek_delayed().id == job.id
    client.kick_job(job)
    job = client.reserve_job(job.id)
    client.bury(job)
    assert client.peek_buried().body == 'hello' and client.kick(10) == 1
    assert client.peek_ready().id == client.peek(first).id == first
    client.delete(job)
    for ask in [lambda: client.peek(first), lambda: client.delete(first), lambda: client.stats_tube('nothing')]:
        try:
            ask()
            raise SystemExit('there is something')
        except greenstalk.NotFoundError:
            pass
    try:
        client.reserve(timeout=0)
        raise SystemExit('there is a job')
    except greenstalk.TimedOutError:
        pass
    try:
        client.put('x' * 70000)
        raise SystemExit('it is not too long')
    except greenstalk.JobTooBigError:
        pass
    client.put('urgent', ttr=1)
    job = client.reserve()
    try:
        client.reserve()
        raise SystemExit('there is another job')
    except greenstalk.DeadlineSoonError:
        pass
    client.delete(job)
    client.pause_tube('emails', 60)
    assert client.stats_tube('emails')['pause'] == 60 and client.stats_tube('emails')['name'] == 'emails'
    client.pause_tube('emails', 0)
    assert client.ignore('other') == 1
    try:
        client.ignore('emails')
        raise SystemExit('the last watch is gone')
    except greenstalk.NotIgnoredError:
        pass
    stats = client.stats()
    assert stats['draining'] == 'false' and int(stats['total-jobs']) == 2, stats
    assert set(client.tubes()) >= {'default', 'emails'}, client.tubes()
with greenstalk.Client(address, encoding=None) as client:
    body = bytes(range(256)) * 16
    client.put(body)
    job = client.reserve()
    assert job.body == body
    client.delete(job)
with greenstalk.Client(address) as waiting, greenstalk.Client(address) as other:
    job = other.reserve_job(other.put('again', delay=3600))
    thread = threading.Timer(0.2, lambda: other.release(job))
    thread.start()
    while waiting.reserve(timeout=5).body != 'again':
        pass
    thread.join()
print('greenstalk is content')
